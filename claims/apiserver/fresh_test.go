package apiserver

import (
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestStaleAnswersLegacy(t *testing.T) {
	for name, change := range map[string]func(w *legacyWorld, asOf time.Time){
		"the Secret":  func(w *legacyWorld, asOf time.Time) { w.object.AsOf = asOf },
		"the account": func(w *legacyWorld, asOf time.Time) { w.account.AsOf = asOf },
	} {
		t.Run(name, func(t *testing.T) {
			w := newLegacyWorld(t)
			change(w, *w.ago(0))
			if _, err := w.validate(t); err != nil {
				t.Error(err)
			}
			change(w, *w.ago(1))
			if _, err := w.validate(t); !errors.Is(err, claims.CheckStaleAnswer) || !errors.Is(err, ErrRetry) {
				t.Errorf("got %v, want %v", err, claims.CheckStaleAnswer)
			}
		})
	}
}

// TestIssuerAsksEachTime: no token is issued for an object out of a cache.
func TestIssuerAsksEachTime(t *testing.T) {
	w := newWorld(t)
	config := IssuerConfig{Policy: Policy{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}}, Signer: w.signer, Objects: staleObjects{w.objects}, Now: w.clock}
	if _, err := NewIssuer(config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a StaleObjects: %v", err)
	}
	config.Objects = w.objects
	issuer := newIssuer(t, config)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); err != nil {
		t.Error(err)
	}
	w.objects.account.AsOf = *w.ago(1)
	if _, err := issuer.Issue(t.Context(), &TokenRequest{Namespace: "ns", Name: "app"}); !errors.Is(err, claims.CheckStaleAnswer) {
		t.Errorf("an old service account: %v", err)
	}
}
