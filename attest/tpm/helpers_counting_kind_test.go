package tpm_test

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
)

// countingKind takes note of what requests cost.
type countingKind struct {
	*tpm.Kind
	last *attest.Budget
}

// costOf returns the cost of the last request that f makes: signatures, encryptions, and all work.
func (k *countingKind) costOf(f func()) (cost [3]int) {
	k.last = nil
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
