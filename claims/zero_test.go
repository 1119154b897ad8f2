package claims

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestZeroValues: what no constructor made refuses, and does not panic.
func TestZeroValues(t *testing.T) {
	w := newWorld(t)
	token := w.token(t)
	w.claims.Issuer = "" // as a zero configuration has it
	nobodys := w.token(t)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"nil Issuer": func() error { _, err := (*Issuer)(nil).Issue(ctx, &TokenRequest{}); return err },
		"Issuer": func() error {
			_, err := new(Issuer).Issue(ctx, &TokenRequest{Namespace: "ns", Name: "app"})
			return err
		},
		"nil StrictValidator":             func() error { _, err := (*StrictValidator)(nil).Validate(ctx, token); return err },
		"StrictValidator":                 func() error { _, err := new(StrictValidator).Validate(ctx, token); return err },
		"StrictValidator, no issuer":      func() error { _, err := new(StrictValidator).Validate(ctx, nobodys); return err },
		"StrictValidator on a node":       func() error { _, _, err := new(StrictValidator).ValidateOnNode(ctx, nobodys, attested()); return err },
		"nil KubernetesValidator":         func() error { _, err := (*KubernetesValidator)(nil).Validate(ctx, token); return err },
		"KubernetesValidator":             func() error { _, err := new(KubernetesValidator).Validate(ctx, token); return err },
		"KubernetesValidator, no issuer":  func() error { _, err := new(KubernetesValidator).Validate(ctx, nobodys); return err },
		"nil NodeCheck":                   func() error { _, err := (*NodeCheck)(nil).Check(ctx, nil, nil); return err },
		"NodeCheck":                       func() error { _, err := new(NodeCheck).Check(ctx, &Result{}, &AttestedNode{}); return err },
		"nil MemoryReplayCache":           func() error { return (*MemoryReplayCache)(nil).Use(ctx, "i", "a", w.now) },
		"MemoryReplayCache":               func() error { return new(MemoryReplayCache).Use(ctx, "i", "a", w.now) },
		"nil ExternalClient's keys":       func() error { _, err := (*ExternalClient)(nil).Keys(ctx, "k"); return err },
		"ExternalClient's keys":           func() error { _, err := new(ExternalClient).Keys(ctx, "k"); return err },
		"ExternalClient's published keys": func() error { _, _, err := new(ExternalClient).PublishedKeys(ctx); return err },
		"ExternalClient's signature":      func() error { _, err := new(ExternalClient).Sign(ctx, nil); return err },
		"nil SignerService":               func() error { _, err := (*SignerService)(nil).Sign(ctx, "e30"); return err },
		"SignerService":                   func() error { _, err := new(SignerService).Sign(ctx, "e30"); return err },
		"SignerService's keys":            func() error { _, err := new(SignerService).FetchKeys(ctx); return err },
		"nil SignerService's keys":        func() error { _, err := (*SignerService)(nil).FetchKeys(ctx); return err },
		"SignerService's metadata":        func() error { _, err := new(SignerService).Metadata(ctx); return err },
		"CachedObjects' service account":  func() error { _, err := new(CachedObjects).ServiceAccount(ctx, "ns", "app"); return err },
		"CachedObjects' Node":             func() error { _, err := new(CachedObjects).Node(ctx, "node-a"); return err },
		"nil KeySetSource":                func() error { _, _, err := (*KeySetSource)(nil).PublishedKeys(ctx); return err },
		"KeySetSource":                    func() error { _, _, err := new(KeySetSource).PublishedKeys(ctx); return err },
		"nil Policy":                      func() error { _, err := (*Policy)(nil).Grant(&TokenRequest{}, Bound{}, w.now, ""); return err },
		"Policy":                          func() error { _, err := new(Policy).Grant(&TokenRequest{}, Bound{}, w.now, ""); return err },
		"OIDCConfig":                      func() error { _, err := new(OIDCConfig).Render(nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(); !errors.Is(err, CheckConfig) {
				t.Errorf("got %v, want %v", err, CheckConfig)
			}
		})
	}
	if err := new(ExternalClient).Close(); err != nil {
		t.Error(err)
	}
	if new(ExternalClient).MaxTokenLifetime() != 0 {
		t.Error("a lifetime of nothing")
	}
	answer := httptest.NewRecorder()
	new(OIDCHandler).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, OIDCKeySetPath, nil))
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("a zero OIDCHandler answers %d, want 503", answer.Code)
	}
}
