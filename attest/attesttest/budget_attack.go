package attesttest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// watchedKind is the kind of a world, and sees whether it asks its budget.
type watchedKind struct {
	attest.Kind
	asked atomic.Bool // to verify an answer
	spent atomic.Bool // give it a budget that allows nothing
}

// ReadAnswer reads as the kind does.
func (k *watchedKind) ReadAnswer(e *attest.Evidence) (attest.AnswerEvidence, error) {
	answer, err := k.Kind.ReadAnswer(e)
	if answer == nil || err != nil {
		return answer, err
	}
	return &watchedAnswer{answer, k}, nil
}

type watchedAnswer struct {
	attest.AnswerEvidence
	kind *watchedKind
}

// Verify verifies as the kind does, with no budget if that is the attack.
func (a *watchedAnswer) Verify(ctx context.Context, q *attest.Inquiry) (*attest.Findings, error) {
	a.kind.asked.Store(true)
	if a.kind.spent.Load() {
		poor := *q
		poor.Budget = attest.NewBudget(0)
		q = &poor
	}
	return a.AnswerEvidence.Verify(ctx, q)
}

// budgetAttack is good evidence with a budget that allows nothing: a kind that verifies it all the same
// has not asked, and a request can cost it any number of signatures. The kind must be the one in the
// world's Config; no other provider has a budget.
func budgetAttack() Attack {
	return Attack{Name: "budget-spent", Class: classStatement, Want: []attest.Check{attest.CheckBudget},
		Description: "The budget allows neither a signature nor other work.", make: func(ctx context.Context, a *attempt) (*csr.Request, error) {
			switch _, verifier := a.provider.(*attest.Verifier); {
			case a.watched.asked.Load():
			case verifier:
				return nil, errors.New("the verifier has other kinds of evidence than World.Config")
			default:
				return nil, errNotApplicable("the provider is not a verifier with the kind in World.Config")
			}
			a.watched.spent.Store(true)
			return requestOptions{}.make(ctx, a)
		}}
}
