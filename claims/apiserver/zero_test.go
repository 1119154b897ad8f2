package apiserver

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
		"Issuer": func() error {
			_, err := new(Issuer).Issue(ctx, &TokenRequest{Namespace: "ns", Name: "app"})
			return err
		},
		"Validator":            func() error { _, err := new(Validator).Validate(ctx, token); return err },
		"Validator, no issuer": func() error { _, err := new(Validator).Validate(ctx, nobodys); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %v", err, refusal.CheckConfig)
			}
		})
	}
}
