package claims

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestZeroValues: what no constructor made refuses, and does not panic.
func TestZeroValues(t *testing.T) {
	w := newWorld(t)
	token := w.token(t)
	w.claims.Issuer = "" // as a zero configuration has it
	nobodys := w.token(t)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Validator":            func() error { _, err := new(Validator).Validate(ctx, token); return err },
		"Validator, no issuer": func() error { _, err := new(Validator).Validate(ctx, nobodys); return err },
		"Validator on a node":  func() error { _, _, err := new(Validator).ValidateOnNode(ctx, nobodys, attested()); return err },
		"NodeCheck": func() error {
			_, err := NodeCheck{}.Check(ctx, w.objects, &Result{}, &AttestedNode{}, w.now)
			return err
		},
		"MemoryReplayCache": func() error { return new(MemoryReplayCache).Use(ctx, "i", "a", w.now) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %v", err, refusal.CheckConfig)
			}
		})
	}
}
