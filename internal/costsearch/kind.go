package costsearch

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
)

// Kind is a kind of evidence that notes what requests cost.
type Kind struct {
	attest.Kind
	last *attest.Budget
}

// Cost is what the last request that f makes costs: signatures, encryptions, and all work.
func (k *Kind) Cost(f func()) (signatures, encryptions, work int) {
	k.last = &attest.Budget{}
	f()
	return k.last.Spent()
}

// ReadHello reads as the kind does.
func (k *Kind) ReadHello(e *attest.Evidence) (attest.HelloEvidence, error) {
	h, err := k.Kind.ReadHello(e)
	if err != nil {
		return nil, err
	}
	return &hello{h, k}, nil
}

// ReadAnswer reads as the kind does.
func (k *Kind) ReadAnswer(e *attest.Evidence) (attest.AnswerEvidence, error) {
	a, err := k.Kind.ReadAnswer(e)
	if err != nil {
		return nil, err
	}
	return &answer{a, k}, nil
}

type hello struct {
	attest.HelloEvidence
	kind *Kind
}

func (h *hello) Trust(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	h.kind.last = q.Budget
	return h.HelloEvidence.Trust(ctx, q)
}

type answer struct {
	attest.AnswerEvidence
	kind *Kind
}

func (a *answer) Check(q *attest.Inquiry) error {
	a.kind.last = q.Budget
	return a.AnswerEvidence.Check(q)
}
