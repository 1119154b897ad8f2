package extsigner

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestZeroValues: what no constructor made refuses, and does not panic.
func TestZeroValues(t *testing.T) {
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Service":            func() error { _, err := new(Service).Sign(ctx, "e30"); return err },
		"Service's keys":     func() error { _, err := new(Service).FetchKeys(ctx); return err },
		"Service's metadata": func() error { _, err := new(Service).Metadata(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %v", err, refusal.CheckConfig)
			}
		})
	}
}
