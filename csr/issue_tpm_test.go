package csr_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// TestIssueForTPM takes the request of a node with a TPM through this package: its bundle is read,
// its request checked, and a certificate issued with its provider ID.
func TestIssueForTPM(t *testing.T) {
	for name, o := range map[string]attesttest.NodeOptions{
		"an AK with a certificate": {},
		"an EK with a certificate": {Road: attest.RoadEK},
		"a key in the TPM":         {TPMKey: tpmkey.ECDSAP256},
	} {
		t.Run(name, func(t *testing.T) {
			node := attesttest.NewNode(t, o)
			plane := attesttest.NewControlPlane(t, node)
			request, err := plane.Evidence(t.Context(), node)
			if err != nil {
				t.Fatal(err)
			}
			bundle, err := csr.Parse(request.Spec.Request)
			if err != nil || bundle.Provider != "tpm/v1" || len(bundle.Data) == 0 {
				t.Fatalf("a bundle of %q with %d bytes, %v", bundle.Provider, len(bundle.Data), err)
			}
			if text, err := bundle.Marshal(); err != nil || !bytes.Equal(text, request.Spec.Request) {
				t.Errorf("the bundle is written differently: %s, %v", text, err)
			}
			checked, err := plane.Config.Policy.Check(t.Context(), request.Parsed())
			if err != nil {
				t.Fatal(err)
			}
			if checked.NodeName() != node.Name || checked.ClaimedProviderID().Unproven() != attesttest.ProviderID {
				t.Errorf("node %q with provider ID %q", checked.NodeName(), checked.ClaimedProviderID().Unproven())
			}
			result, err := plane.Verifier.Verify(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			issued, err := plane.CA.Issue(t.Context(), result.Attested())
			if err != nil {
				t.Fatal(err)
			}
			key, ok := issued.Certificate.PublicKey.(*ecdsa.PublicKey)
			if !ok || !key.Equal(node.Key.Public()) {
				t.Errorf("a certificate of another key: %v", issued.Certificate.PublicKey)
			}
			if id, err := oid.ParseProviderID(issued.Certificate.Extensions); err != nil || id != attesttest.ProviderID {
				t.Errorf("provider ID %q, %v", id, err)
			}
			if issued.Record.Machine != string(result.Machine) {
				t.Errorf("recorded is %q, verified was %q", issued.Record.Machine, result.Machine)
			}
			notVouched := checked.Vouch(string(result.Machine), csr.Grant{}, nil)
			if _, err := plane.CA.Issue(context.Background(), notVouched); !errors.Is(err, csr.Check("provider-id-not-vouched")) {
				t.Errorf("a provider ID that is not vouched for: %v", err)
			}
		})
	}
}
