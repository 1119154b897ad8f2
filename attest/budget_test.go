package attest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// A budget allows exactly as many signatures as it was made for.
func TestSignaturesAtTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		budget *Budget
		limit  int
	}{
		"nil":            {nil, 0},
		"the zero value": {&Budget{}, 0},
		"none":           {NewBudget(0), 0},
		"less than none": {NewBudget(-1), 0},
		"one":            {NewBudget(1), 1},
		"of a request":   {NewBudget(helloSignatures), 10},
		"after its encryption": {func() *Budget {
			b := NewBudget(2)
			testkit.NoError(t, b.Encryption(t.Context()))
			return b
		}(), 2},
	} {
		t.Run(name, func(t *testing.T) {
			for n := range c.limit {
				if err := c.budget.Signature(t.Context()); err != nil {
					t.Fatalf("signature %d: %v", n+1, err)
				}
			}
			for range 2 {
				err := c.budget.Signature(t.Context())
				if !errors.Is(err, CheckBudget) || errors.Is(err, refusal.ErrRetry) {
					t.Errorf("one more: %v", err)
				}
			}
			if got := c.budget.Signatures(); got != c.limit {
				t.Errorf("%d are counted, want %d", got, c.limit)
			}
		})
	}
}

func TestOneEncryption(t *testing.T) {
	b := NewBudget(1)
	testkit.NoError(t, b.Signature(t.Context()))
	if err := b.Encryption(t.Context()); err != nil || encryptionsOf(b) != 1 {
		t.Fatalf("the first: %v, %d are counted", err, encryptionsOf(b))
	}
	if err := b.Encryption(t.Context()); !errors.Is(err, CheckBudget) || errors.Is(err, refusal.ErrRetry) || encryptionsOf(b) != 1 {
		t.Errorf("a second: %v, %d are counted", err, encryptionsOf(b))
	}
	if b.Signatures() != 1 {
		t.Errorf("%d signatures are counted", b.Signatures())
	}
	for name, none := range map[string]*Budget{"nil": nil, "the zero value": {}, "none": NewBudget(0)} {
		if err := none.Encryption(t.Context()); !errors.Is(err, CheckBudget) || errors.Is(err, refusal.ErrRetry) || encryptionsOf(none) != 0 {
			t.Errorf("out of %s: %v, %d are counted", name, err, encryptionsOf(none))
		}
	}
}

// Once the context has ended nothing is allowed, counted or refused for good, be there
// something left of the budget or not.
func TestEndedContext(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the request is gone"))
	for name, b := range map[string]*Budget{"with something left": NewBudget(1), "with nothing left": NewBudget(0)} {
		t.Run(name, func(t *testing.T) {
			for what, count := range map[string]func(context.Context) error{"signature": b.Signature, "encryption": b.Encryption,
				"work": func(ctx context.Context) error { return b.Work(ctx, 1) }} {
				err := count(ended)
				if !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) || errors.Is(err, CheckBudget) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if b.Signatures() != 0 || encryptionsOf(b) != 0 {
				t.Errorf("%d and %d are counted", b.Signatures(), encryptionsOf(b))
			}
		})
	}
}

func encryptionsOf(b *Budget) int { _, n, _ := b.Spent(); return n }

// A budget for some signatures allows one amount of other work, which no part of it exceeds.
func TestWorkAtTheLimit(t *testing.T) {
	b := NewBudget(1)
	for _, n := range []int{maxWork - 2, 1, 0, 1} {
		if err := b.Work(t.Context(), n); err != nil {
			t.Fatalf("%d: %v", n, err)
		}
	}
	for _, n := range []int{1, maxWork, math.MaxInt} {
		if err := b.Work(t.Context(), n); !errors.Is(err, CheckBudget) || errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%d more: %v", n, err)
		}
	}
	if err := b.Work(t.Context(), 0); err != nil {
		t.Errorf("nothing more: %v", err)
	}
	for what, count := range map[string]func(context.Context) error{"signature": b.Signature, "encryption": b.Encryption} {
		if err := count(t.Context()); !errors.Is(err, CheckBudget) {
			t.Errorf("a %s after that: %v", what, err)
		}
	}
	if signatures, encryptions, work := b.Spent(); signatures != 0 || encryptions != 0 || work != maxWork {
		t.Errorf("%d, %d and %d are counted", signatures, encryptions, work)
	}
	b = NewBudget(1)
	testkit.NoError(t, errors.Join(b.Signature(t.Context()), b.Encryption(t.Context())))
	if _, _, work := b.Spent(); work != 2*64<<10 {
		t.Errorf("two operations count for %d", work)
	}
	for name, none := range map[string]*Budget{"nil": nil, "the zero value": {}, "none": NewBudget(0)} {
		if err := none.Work(t.Context(), 0); !errors.Is(err, CheckBudget) {
			t.Errorf("out of %s: %v", name, err)
		}
	}
}
