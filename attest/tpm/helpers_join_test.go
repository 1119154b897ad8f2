package tpm_test

import (
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/costsearch"
)

// attesterOf is an attester with a TPM's evidence.
func attesterOf(t testing.TB, device transport.TPM, source tpmkind.AKSource, o tpmkind.ProverOptions) *attest.Attester {
	t.Helper()
	p, err := tpmkind.NewProver(device, source, o)
	if err != nil {
		t.Fatal(err)
	}
	a, err := attest.NewAttester(p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// verifierOf is a verifier like a control plane's, with another kind of TPM evidence.
func verifierOf(t testing.TB, c attest.VerifierConfig, k tpmkind.KindConfig) (*attest.Verifier, *countingKind) {
	t.Helper()
	kind, err := tpmkind.NewKind(k)
	if err != nil {
		t.Fatal(err)
	}
	counting := &countingKind{&costsearch.Kind{Kind: kind}, kind}
	c.Kinds = []attest.Kind{counting}
	v, err := attest.NewVerifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return v, counting
}

// planeVerifier is the verifier of a control plane whose configuration was changed.
func planeVerifier(t testing.TB, plane *attesttest.ControlPlane) *attest.Verifier {
	t.Helper()
	v, _ := verifierOf(t, plane.Config, plane.TPM)
	return v
}

// countingKind takes note of what requests cost.
type countingKind struct {
	*costsearch.Kind
	tpm *tpmkind.Kind
}

func (k *countingKind) ForgetSignatures(intermediates bool) { k.tpm.ForgetSignatures(intermediates) }

// costOf is what the last request that f makes costs: signatures, encryptions, and all work.
func (k *countingKind) costOf(f func()) (cost [3]int) {
	cost[0], cost[1], cost[2] = k.Cost(f)
	return cost
}

func newVerifier(t testing.TB, c *attest.VerifierConfig) *attest.Verifier {
	t.Helper()
	v, err := attest.NewVerifier(*c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
