package apiserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestIssuerAsksForWhatItNeeds: what is refused by itself is refused before anybody is
// asked, as in kube-apiserver, and a pod without a node has none that is asked for.
func TestIssuerAsksForWhatItNeeds(t *testing.T) {
	short := int64(1)
	pod := &BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod"}
	for name, tt := range map[string]struct {
		request TokenRequest
		change  func(o *worldObjects)
		asked   []string
	}{
		"another name":       {TokenRequest{Namespace: "ns", Name: "app", MetadataName: "x", BoundObject: pod}, nil, nil},
		"another account":    {TokenRequest{Namespace: "ns", Name: "app", UID: "x", BoundObject: pod}, nil, []string{"serviceaccounts"}},
		"a short lifetime":   {TokenRequest{Namespace: "ns", Name: "app", ExpirationSeconds: &short, BoundObject: pod}, nil, []string{"serviceaccounts"}},
		"a pod of others":    {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, func(o *worldObjects) { o.pod.ServiceAccountName = "x" }, []string{"serviceaccounts", "pods"}},
		"a pod nowhere":      {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, func(o *worldObjects) { o.pod.NodeName = "" }, []string{"serviceaccounts", "pods"}},
		"a pod on its node":  {TokenRequest{Namespace: "ns", Name: "app", BoundObject: pod}, nil, []string{"serviceaccounts", "pods", "nodes"}},
		"a kind of no token": {TokenRequest{Namespace: "ns", Name: "app", BoundObject: &BoundObjectReference{Kind: "Job"}}, nil, []string{"serviceaccounts"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tt.change != nil {
				tt.change(w.objects)
			}
			issuer := newIssuer(t, IssuerConfig{Policy: Policy{Issuer: worldIssuer, APIAudiences: []string{worldIssuer}}, Signer: w.signer, Objects: w.objects, Now: w.clock})
			_, _ = issuer.Issue(t.Context(), &tt.request)
			if !slices.Equal(w.objects.asked, tt.asked) {
				t.Errorf("asked for %q, want %q", w.objects.asked, tt.asked)
			}
		})
	}
}

func TestOIDCLimits(t *testing.T) {
	key := newECDSA(t, "").Key()
	render := func(c OIDCConfig, keys ...*jws.Key) error {
		_, err := c.Render(keys)
		return err
	}
	long := func(n int) string { return "https://h/" + strings.Repeat("a", n-len("https://h/")) }
	for name, tt := range map[string]struct {
		config OIDCConfig
		good   bool
	}{
		"the longest issuer":      {OIDCConfig{Issuer: long(MaxURLSize), ExternalAddress: "h"}, true},
		"one more":                {OIDCConfig{Issuer: long(MaxURLSize + 1), ExternalAddress: "h"}, false},
		"the longest address":     {OIDCConfig{Issuer: "https://h", ExternalAddress: strings.Repeat("a", MaxURLSize)}, true},
		"a longer address":        {OIDCConfig{Issuer: "https://h", ExternalAddress: strings.Repeat("a", MaxURLSize+1)}, false},
		"an address with a user":  {OIDCConfig{Issuer: "https://h", ExternalAddress: "u@h"}, false},
		"an address with a path":  {OIDCConfig{Issuer: "https://h", ExternalAddress: "h/p"}, false},
		"an address with a query": {OIDCConfig{Issuer: "https://h", ExternalAddress: "h?q"}, false},
		"no address":              {OIDCConfig{Issuer: "https://h"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := render(tt.config, key); (err == nil) != tt.good || !tt.good && !errors.Is(err, refusal.CheckConfig) {
				t.Error(err)
			}
		})
	}
	if err := render(OIDCConfig{Issuer: "https://h", ExternalAddress: "h"}, key, key); !errors.Is(err, jws.CheckKeySet) {
		t.Errorf("a key twice: %v", err)
	}
}

// keysAndError answers and fails at once.
type keysAndError struct{ key *jws.Key }

func (k keysAndError) DiscoveryKeys(context.Context) ([]*jws.Key, time.Duration, error) {
	return []*jws.Key{k.key}, time.Hour, errDead
}

func TestOIDCHandlerSourceFails(t *testing.T) {
	h, err := NewOIDCHandler(keysAndError{newECDSA(t, "").Key()}, OIDCConfig{Issuer: "https://h", ExternalAddress: "h"})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, OIDCKeySetPath, nil))
	if answer.Code != http.StatusServiceUnavailable {
		t.Errorf("%d, want 503", answer.Code)
	}
}

func TestPolicyLimits(t *testing.T) {
	const least, most = 600 * time.Second, 1 << 32 * time.Second
	for name, tt := range map[string]struct {
		lifetime time.Duration
		good     bool
	}{"the least": {least, true}, "less": {least - 1, false}, "the most": {most, true}, "more": {most + 1, false}, "negative": {-1, false}} {
		t.Run(name, func(t *testing.T) {
			for _, p := range []Policy{{MaxExpiration: tt.lifetime}, {MaxExtendedExpiration: tt.lifetime}} {
				p.Issuer, p.APIAudiences = "https://h", []string{"api"}
				if err := p.Check(); (err == nil) != tt.good || !tt.good && !errors.Is(err, refusal.CheckConfig) {
					t.Errorf("%+v: %v", p, err)
				}
			}
		})
	}
}
