package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

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
		res := ask(h, http.MethodGet, OIDCKeySetPath)
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
	if got := ask(h, http.MethodGet, OIDCKeySetPath).Header.Get("Cache-Control"); got != "public, max-age=0" {
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
		want := DefaultMaxAge
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
	if _, _, err := source.DiscoveryKeys(testContext); !errors.Is(err, ErrRetry) || !errors.Is(err, down) {
		t.Error(err)
	}
}
