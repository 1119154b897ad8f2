package controller

import (
	"errors"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestNew refuses what cannot work, each thing alone.
func TestNew(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"no providers":                    func(c *Config) { c.Providers = nil },
		"providers for no signer":         func(c *Config) { c.Providers = &fakeProviders{} },
		"those of a nil verifier":         func(c *Config) { c.Providers = Of(nil) },
		"serving without records":         func(c *Config) { c.Serving = &csr.Policy{SignerNames: []string{csr.SignerKubeletServing}} },
		"a negative rate":                 func(c *Config) { c.RequesterRate = -1 },
		"a negative burst":                func(c *Config) { c.RequesterBurst = -1 },
		"a negative number of goroutines": func(c *Config) { c.Workers = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Providers: &fakeProviders{signers: []string{builtIn}}}
			if _, err := New(c); err != nil {
				t.Fatal(err)
			}
			change(&c)
			if _, err := New(c); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %s", err, refusal.CheckConfig)
			}
		})
	}
}
