package tpm_test

import (
	"context"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A TPM that keeps the intermediate of its EK certificate in NV joins a control plane that has the
// root alone, when its node sends it; else the chain ends too early.
func TestEKChainFromNV(t *testing.T) {
	ctx := context.Background()
	ek := tpmkind.EKRSA2048()
	node := attesttest.NewNode(t, attesttest.NodeOptions{TPM: tpmsim.New(t, everyEK()), Road: attest.RoadEK, EK: ek})
	plane := attesttest.NewControlPlane(t, node)
	ca := node.TPM.CA()

	node.Attester = attesterOf(t, node.Shared, tpmkind.GCERSA(), tpmkind.ProverOptions{EK: &ek})
	if _, err := plane.Join(ctx, node); !errors.Is(err, tpmcert.CheckCertificateChain) {
		t.Errorf("without asking for the chain: %v", err)
	}
	node.Attester = attesterOf(t, node.Shared, tpmkind.GCERSA(), tpmkind.ProverOptions{EK: &ek, EKChainFromNV: true})
	if _, err := plane.Join(ctx, node); !errors.Is(err, tpmcert.CheckCertificateChain) {
		t.Errorf("nothing in NV: %v", err)
	}
	// The AK's intermediate and the root stand there too, and stay there.
	for n, c := range []*x509.Certificate{ca.AKIntermediate(), ca.Root(), ca.EKIntermediate()} {
		testkit.NoError(t, node.TPM.WriteNV(0x01c00100+3*tpm2.TPMHandle(n), c.Raw))
	}
	request, err := plane.Evidence(ctx, node)
	testkit.NoError(t, err)
	r, err := plane.Verifier.Verify(ctx, request)
	testkit.NoError(t, err)
	if len(tpmkind.DetailsOf(r).Chain) != 3 || !tpmkind.DetailsOf(r).Chain[1].Equal(ca.EKIntermediate()) || !tpmkind.DetailsOf(r).Chain[2].Equal(ca.Root()) {
		t.Errorf("chain %v", tpmkind.DetailsOf(r).Chain)
	}
	if _, err := plane.CA.Issue(ctx, r.Attested()); err != nil {
		t.Error(err)
	}
	node.Attester = attesterOf(t, node.Shared, tpmkind.GCERSA(), tpmkind.ProverOptions{EK: &ek})
	if _, err := plane.Join(ctx, node); !errors.Is(err, tpmcert.CheckCertificateChain) {
		t.Errorf("not asked for: %v", err)
	}
	noHandles(t, node.TPM)

	node.Attester = attesterOf(t, node.Shared, tpmkind.GCERSA(), tpmkind.ProverOptions{EK: &ek, EKChainFromNV: true})
	testkit.NoError(t, node.TPM.WriteNV(0x01c00101, []byte("no certificate")))
	if _, err := node.Hello(ctx, plane.Now()); !errors.Is(err, refusal.Check("ek-chain-encoding")) {
		t.Errorf("no certificate in NV: %v", err)
	}
	noHandles(t, node.TPM)
}

// EKChainFromNV is only for a leaf from NV, without other intermediates.
func TestEKChainFromNVOptions(t *testing.T) {
	device := tpmkey.Share(&tpmsim.TPM{})
	ek, bare := tpmkind.EKRSA2048(), tpmkind.EKRSA2048()
	bare.CertificateIndex = 0
	for name, o := range map[string]tpmkind.ProverOptions{
		"road of the AK":    {EKChainFromNV: true},
		"no certificate":    {EKChainFromNV: true, EK: &bare},
		"own certificates":  {EKChainFromNV: true, EK: &ek, Certificates: [][]byte{{0x30, 0}}},
		"own intermediates": {EKChainFromNV: true, EK: &ek, Intermediates: [][]byte{{0x30, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := tpmkind.NewProver(device, tpmkind.GCERSA(), o); err == nil {
				t.Errorf("%s: accepted", name)
			}
		})
	}
	if _, err := tpmkind.NewProver(device, tpmkind.GCERSA(), tpmkind.ProverOptions{EK: &ek, EKChainFromNV: true}); err != nil {
		t.Error(err)
	}
}
