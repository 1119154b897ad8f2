package apiserver

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// A recordedDiscovery is a configuration and what kube-apiserver serves for it.
type recordedDiscovery struct {
	What            string   `json:"what"`
	Issuer          string   `json:"issuer"`
	KeySetURL       string   `json:"key_set_url"`
	ExternalAddress string   `json:"external_address"`
	Excluded        []string `json:"excluded"`
	Error           string   `json:"error"`
	Configuration   string   `json:"configuration"`
	KeySet          string   `json:"key_set"`
}

func (r *recordedDiscovery) config() OIDCConfig {
	return OIDCConfig{Issuer: r.Issuer, KeySetURL: r.KeySetURL, ExternalAddress: r.ExternalAddress}
}

// recordedDiscoveries returns the cases and the keys of all of them.
func recordedDiscoveries(t testing.TB) ([]recordedDiscovery, []*jws.Key) {
	t.Helper()
	var file struct {
		Keys  string              `json:"keys"`
		Cases []recordedDiscovery `json:"cases"`
	}
	recording(t, "oidc.json", &file)
	keys, err := jws.ParseJWKS([]byte(file.Keys))
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 10 || len(keys) != 5 {
		t.Fatalf("%d cases, %d keys", len(file.Cases), len(keys))
	}
	return file.Cases, keys
}

// published are the keys that kube-apiserver does not exclude from discovery.
func (r *recordedDiscovery) published(keys []*jws.Key) []*jws.Key {
	return slices.DeleteFunc(slices.Clone(keys), func(k *jws.Key) bool { return slices.Contains(r.Excluded, k.KeyID()) })
}

func TestRenderLikeKubernetes(t *testing.T) {
	cases, keys := recordedDiscoveries(t)
	for _, r := range cases {
		t.Run(r.What, func(t *testing.T) {
			config := r.config()
			got, err := config.Render(r.published(keys))
			if r.Error != "" {
				if got != nil || !errors.Is(err, refusal.CheckConfig) {
					t.Errorf("got %v, want an error like %q", err, r.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Configuration) != r.Configuration {
				t.Errorf("got  %s\nwant %s", got.Configuration, r.Configuration)
			}
			if string(got.KeySet) != r.KeySet {
				t.Errorf("got  %s\nwant %s", got.KeySet, r.KeySet)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	cases, keys := recordedDiscoveries(t)
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwards, err := jws.NewKey(public, jws.KeyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pss, err := jws.NewKey(keys[0].Public(), jws.KeyOptions{Algorithm: jws.PS256})
	if err != nil {
		t.Fatal(err)
	}
	good := cases[0].config()
	for what, published := range map[string][]*jws.Key{
		"none":        nil,
		"nil":         {nil},
		"Ed25519":     {edwards},
		"another alg": {keys[0], pss},
	} {
		t.Run(what, func(t *testing.T) {
			if got, err := good.Render(published); got != nil || !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	long := strings.Repeat("a", maxURLSize)
	for what, config := range map[string]OIDCConfig{
		"no issuer":         {ExternalAddress: "h"},
		"no host":           {Issuer: "https:///path", ExternalAddress: "h"},
		"a long issuer":     {Issuer: "https://" + long, ExternalAddress: "h"},
		"a long address":    {Issuer: "https://h", ExternalAddress: "h" + long},
		"a long URL":        {Issuer: "https://h", KeySetURL: "https://" + long},
		"a malformed URL":   {Issuer: "https://h", KeySetURL: "https://h/%zz"},
		"no URL of the set": {Issuer: "https://h", KeySetURL: "jwks"},
	} {
		t.Run(what, func(t *testing.T) {
			if got, err := config.Render([]*jws.Key{keys[0]}); got != nil || !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// FuzzRender: no issuer or address makes a document that names an http URL, or panics.
func FuzzRender(f *testing.F) {
	cases, keys := recordedDiscoveries(f)
	for _, r := range cases {
		f.Add(r.Issuer, r.KeySetURL, r.ExternalAddress)
	}
	f.Fuzz(func(t *testing.T, issuer, keySetURL, address string) {
		config := OIDCConfig{Issuer: issuer, KeySetURL: keySetURL, ExternalAddress: address}
		got, err := config.Render([]*jws.Key{keys[1]})
		if err != nil {
			if !errors.Is(err, refusal.CheckConfig) {
				t.Fatal(err)
			}
			return
		}
		url, err := config.check()
		if err != nil || !strings.HasPrefix(strings.ToLower(url), "https://") || !strings.HasPrefix(strings.ToLower(issuer), "https://") {
			t.Fatalf("%s: %q, %v", got.Configuration, url, err)
		}
	})
}

type keySourceFunc func(context.Context) ([]*jws.Key, time.Duration, error)

func (f keySourceFunc) DiscoveryKeys(ctx context.Context) ([]*jws.Key, time.Duration, error) {
	return f(ctx)
}

type keySetFunc func(context.Context, string) ([]*jws.Key, error)

func (f keySetFunc) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) {
	return f(ctx, keyID)
}

// ask sends one request to a handler.
func ask(h http.Handler, method, path string) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Result()
}

func TestOIDCHandler(t *testing.T) {
	cases, keys := recordedDiscoveries(t)
	r := cases[2]
	source := keySourceFunc(func(context.Context) ([]*jws.Key, time.Duration, error) {
		return r.published(keys), time.Hour, nil
	})
	h, err := NewOIDCHandler(source, r.config())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, mediaType, body string }{
		{"/.well-known/openid-configuration", "application/json", r.Configuration},
		{"/openid/v1/jwks", "application/jwk-set+json", r.KeySet},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			res := ask(h, method, tt.path)
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != 200 || res.Header.Get("Content-Type") != tt.mediaType || res.Header.Get("Cache-Control") != "public, max-age=3600" || string(body) != tt.body {
				t.Errorf("%s %s: %d, %v, %s", method, tt.path, res.StatusCode, res.Header, body)
			}
		}
		if res := ask(h, http.MethodPost, tt.path); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST: %d, %v", res.StatusCode, res.Header)
		}
	}
	for _, path := range []string{"/", "/openid/v1/jwks/", "/openid/v1", "/x/openid/v1/jwks", "/.well-known/openid-configuration/x"} {
		if res := ask(h, http.MethodGet, path); res.StatusCode != 404 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}

func TestOIDCHandlerUnavailable(t *testing.T) {
	cases, keys := recordedDiscoveries(t)
	for what, source := range map[string]keySourceFunc{
		"no answer": func(context.Context) ([]*jws.Key, time.Duration, error) {
			return nil, 0, errors.New("the inside of the signer")
		},
		"no key": func(context.Context) ([]*jws.Key, time.Duration, error) { return nil, time.Hour, nil },
	} {
		h, err := NewOIDCHandler(source, cases[0].config())
		if err != nil {
			t.Fatal(err)
		}
		res := ask(h, http.MethodGet, oidcKeySetPath)
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 503 || res.Header.Get("Cache-Control") != "no-store" || string(body) != "Service Unavailable\n" {
			t.Errorf("%s: %d, %v, %s, %v", what, res.StatusCode, res.Header, body, err)
		}
	}
	// A time that is over is no negative age.
	h, err := NewOIDCHandler(keySourceFunc(func(context.Context) ([]*jws.Key, time.Duration, error) {
		return []*jws.Key{keys[0]}, -time.Minute, nil
	}), cases[0].config())
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(h, http.MethodGet, oidcKeySetPath).Header.Get("Cache-Control"); got != "public, max-age=0" {
		t.Error(got)
	}
}

func TestNewOIDCHandlerRefuses(t *testing.T) {
	cases, _ := recordedDiscoveries(t)
	if _, err := NewOIDCHandler(nil, cases[0].config()); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
	if _, err := NewOIDCHandler(&KeySetSource{}, OIDCConfig{}); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
}

func TestKeySetSource(t *testing.T) {
	_, keys := recordedDiscoveries(t)
	set, err := jws.NewStaticKeySet(keys[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	source := KeySetSource{Keys: set}
	for _, age := range []time.Duration{0, time.Minute} {
		source.MaxAge = age
		published, maxAge, err := source.DiscoveryKeys(testContext)
		want := defaultMaxAge
		if age != 0 {
			want = age
		}
		if err != nil || maxAge != want || !slices.Equal(published, keys[:2]) {
			t.Fatalf("%v, %v, %v", published, maxAge, err)
		}
	}
	if _, _, err := new(KeySetSource).DiscoveryKeys(testContext); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
	down := errors.New("down")
	source.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return nil, down })
	if _, _, err := source.DiscoveryKeys(testContext); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, down) {
		t.Error(err)
	}
}
