package tpm_test

import (
	"context"
	"testing"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
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
	counting := &countingKind{Kind: kind}
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
	*tpmkind.Kind
	last *attest.Budget
}

// costOf is what the last request that f makes costs: signatures, encryptions, and all work.
func (k *countingKind) costOf(f func()) (cost [3]int) {
	k.last = &attest.Budget{}
	f()
	cost[0], cost[1], cost[2] = k.last.Spent()
	return cost
}

func (k *countingKind) ReadHello(e *attest.Evidence) (attest.HelloEvidence, error) {
	h, err := k.Kind.ReadHello(e)
	if err != nil {
		return nil, err
	}
	return &countingHello{h, k}, nil
}

func (k *countingKind) ReadAnswer(e *attest.Evidence) (attest.AnswerEvidence, error) {
	a, err := k.Kind.ReadAnswer(e)
	if err != nil {
		return nil, err
	}
	return &countingAnswer{a, k}, nil
}

type countingHello struct {
	attest.HelloEvidence
	kind *countingKind
}

func (h *countingHello) Trust(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	h.kind.last = q.Budget
	return h.HelloEvidence.Trust(ctx, q)
}

type countingAnswer struct {
	attest.AnswerEvidence
	kind *countingKind
}

func (a *countingAnswer) Check(q *attest.Inquiry) error {
	a.kind.last = q.Budget
	return a.AnswerEvidence.Check(q)
}

func newVerifier(t testing.TB, c *attest.VerifierConfig) *attest.Verifier {
	t.Helper()
	v, err := attest.NewVerifier(*c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
