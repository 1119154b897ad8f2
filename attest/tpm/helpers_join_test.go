package tpm_test

import (
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// attesterOf is an attester with a TPM's evidence.
func attesterOf(t testing.TB, device transport.TPM, source tpmkind.AKSource, o tpmkind.ProverOptions) *attest.Attester {
	t.Helper()
	p, err := tpmkind.NewProver(device, source, o)
	testkit.NoError(t, err)
	a, err := attest.NewAttester(p)
	testkit.NoError(t, err)
	return a
}

// verifierOf is a verifier like a control plane's, with another kind of TPM evidence.
func verifierOf(t testing.TB, c attest.VerifierConfig, k tpmkind.KindConfig) (*attest.Verifier, *countingKind) {
	t.Helper()
	kind, err := tpmkind.NewKind(k)
	testkit.NoError(t, err)
	counting := &countingKind{Kind: kind}
	c.Kinds = []attest.Kind{counting}
	v, err := attest.NewVerifier(c)
	testkit.NoError(t, err)
	return v, counting
}

// planeVerifier is the verifier of a control plane whose configuration was changed.
func planeVerifier(t testing.TB, plane *attesttest.ControlPlane) *attest.Verifier {
	t.Helper()
	v, _ := verifierOf(t, plane.Config, plane.TPM)
	return v
}

func newVerifier(t testing.TB, c *attest.VerifierConfig) *attest.Verifier {
	t.Helper()
	v, err := attest.NewVerifier(*c)
	testkit.NoError(t, err)
	return v
}
