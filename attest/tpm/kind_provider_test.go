package tpm_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestTPMProviderJoins runs the three messages through the verifier as a provider, on both
// roads and for both purposes.
func TestTPMProviderJoins(t *testing.T) {
	tpm := tpmsim.New(t, tpmsim.Options{})
	for name, o := range map[string]attesttest.NodeOptions{
		"AK, client": {},
		"EK, client": {Road: attest.RoadEK},
		"AK, serving": {Purpose: csr.PurposeServing, DNSNames: []string{"node-1.example.com"},
			IPAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}},
		"EK, serving": {Road: attest.RoadEK, Purpose: csr.PurposeServing, DNSNames: []string{"node-1.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			o.TPM = tpm
			node := attesttest.NewNode(t, o)
			plane := attesttest.NewControlPlane(t, node)
			verifier := plane.Verifier
			hello, err := node.Hello(ctx, plane.Now())
			testkit.NoError(t, err)
			challenge, err := verifier.Challenge(ctx, hello)
			testkit.NoError(t, err)
			answer, err := node.Answer(ctx, challenge, plane.Now())
			testkit.NoError(t, err)
			accepted, err := csr.Verify(ctx, verifier, answer)
			testkit.NoError(t, err)
			if accepted.MachineName() != "machine-of-node-1" || accepted.Machine() == "" {
				t.Errorf("got %+v", accepted)
			}
			if _, err := plane.CA.Issue(ctx, accepted); err != nil {
				t.Error(err)
			}
			wrong := verifier.VerifyServingAttestationData
			if node.Purpose == csr.PurposeServing {
				wrong = verifier.VerifyClientAttestationData
			}
			if _, err := wrong(ctx, answer.Parsed()); !errors.Is(err, refusal.Check("provider-purpose")) {
				t.Errorf("the method for another purpose: %v", err)
			}
			if _, err := verifier.Challenge(ctx, answer); !errors.Is(err, refusal.Check("hello-signer")) {
				t.Errorf("an answer is no hello: %v", err)
			}
			if _, err := csr.Verify(ctx, verifier, hello); err == nil {
				t.Error("a hello is no answer")
			}
			answer.User.Username = "system:bootstrap:zzzzzz"
			if _, err := csr.Verify(ctx, verifier, answer); err == nil {
				t.Error("another requester was accepted")
			}
		})
	}
}
