package tpm

import (
	"context"
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/tpmlab"
	"github.com/nodeattest/nodeattest/internal/tpmlab/forger"
	"github.com/nodeattest/nodeattest/refusal"
)

// Each public-key operation is counted before it is done: a spent budget refuses first.
func TestSpentBudgets(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	other := forger.NewAK(t, tpmlab.P256b(), forger.ECDSA)
	seal := func(ctx context.Context, b *attest.Budget) error {
		_, err := (&hello{evidence: &evidence{road: attest.RoadEK}}).Seal(ctx, &attest.Inquiry{Budget: b}, nil)
		return err
	}
	// The statement's signature holds, the quote's does not.
	verify := func(ctx context.Context, b *attest.Budget, quoted bool) error {
		a := quotedAnswer(t, func(f *quoteForgery) { f.ak = &forger.AK{Private: other.Private, Public: f.ak.Public} })
		covers := func(string, []byte) error { return nil }
		a.in.Covers = func([]byte) error { return nil }
		certify := forger.NewCertify(t, forger.NewAK(t, tpmlab.P256(), forger.ECDSA), tpmlab.P256b().Public())
		a.in.Options.Key = certify.Options.Key
		if err := a.in.Parse(certify.Evidence(t), nil); err != nil {
			t.Fatal(err)
		}
		if err := a.in.CheckBeforeSignature(); err != nil {
			t.Fatal(err)
		}
		if quoted {
			if err := a.checkQuote(covers); err != nil {
				t.Fatal(err)
			}
		}
		_, err := a.Verify(ctx, &attest.Inquiry{Budget: b})
		return err
	}
	alone := func(ctx context.Context, b *attest.Budget) error { return verify(ctx, b, false) }
	both := func(ctx context.Context, b *attest.Budget) error { return verify(ctx, b, true) }
	for name, c := range map[string]struct {
		run    func(context.Context, *attest.Budget) error
		ctx    context.Context
		budget *attest.Budget
		want   error
	}{
		"no credential":                {seal, t.Context(), attest.NewBudget(0), attest.CheckBudget},
		"a credential too late":        {seal, cancelled, attest.NewBudget(1), refusal.ErrRetry},
		"no signature":                 {alone, t.Context(), attest.NewBudget(0), attest.CheckBudget},
		"the statement's alone":        {both, t.Context(), attest.NewBudget(1), attest.CheckBudget},
		"the quote's too":              {both, t.Context(), attest.NewBudget(2), refusal.Check("tpm-signature")},
		"signatures that are too late": {alone, cancelled, attest.NewBudget(2), refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.run(c.ctx, c.budget); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
