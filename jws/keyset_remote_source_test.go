package jws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestRemoteKeySetFetch: keys may come from elsewhere than HTTPS, and are kept just so.
func TestRemoteKeySetFetch(t *testing.T) {
	forgers()
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		down := errors.New("down")
		var failing atomic.Bool
		config := RemoteConfig{MaxStale: time.Hour, Fetch: func(ctx context.Context) ([]*Key, time.Duration, error) {
			fetches++
			switch {
			case failing.Load():
				return nil, 0, down
			case fetches > 1:
				<-ctx.Done()
				return nil, 0, ctx.Err()
			}
			return []*Key{forgers()[ES256].key}, time.Minute, nil
		}}
		set, err := NewRemoteKeySet(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, time.Minute, 20 * time.Second} { // the last two: the source hangs
			time.Sleep(wait)
			start := time.Now()
			if keys, err := set.Keys(t.Context(), ""); err != nil || len(keys) != 1 || !time.Now().Equal(start) {
				t.Errorf("after %v: %d keys, %v, waited %v", wait, len(keys), err, time.Since(start))
			}
		}
		failing.Store(true)
		time.Sleep(time.Hour)
		if keys, err := set.Keys(t.Context(), ""); keys != nil || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, down) {
			t.Errorf("after MaxStale: %d keys, %v", len(keys), err)
		}
	})
}

// A source or a transport that panics, or ends its goroutine, is a failed fetch for all who wait: none
// of them hangs, held keys are served meanwhile, and the next fetch succeeds.
func TestRemoteKeySetSourcePanics(t *testing.T) {
	forgers()
	var fault func()
	faulty := func() {
		if fault != nil {
			fault()
		}
	}
	fetch := func(context.Context) ([]*Key, time.Duration, error) {
		faulty()
		return []*Key{forgers()[ES256].key}, time.Minute, nil
	}
	for name, change := range map[string]func(*RemoteConfig){
		"Fetch": func(c *RemoteConfig) { c.Client, c.JWKSURL, c.Fetch = nil, "", fetch },
		"transport": func(c *RemoteConfig) {
			serve := c.Client.Transport
			c.Client = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				faulty()
				return serve.RoundTrip(r)
			})}
		},
	} {
		for end, f := range map[string]func(){"panic": func() { panic("a bug of others") }, "exit": runtime.Goexit} {
			t.Run(name+" "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fault = f
					set, _, now := newRemote(t, change)
					var waiting sync.WaitGroup
					for range 8 {
						waiting.Go(func() {
							if _, err := set.Keys(t.Context(), "k"); !errors.Is(err, refusal.ErrRetry) {
								t.Errorf("got %v, want %v", err, refusal.ErrRetry)
							}
						})
					}
					waiting.Wait()
					if s := set.Status(); s.Failures != 1 || s.Err == nil {
						t.Errorf("%d failures, %v", s.Failures, s.Err)
					}
					fault = nil
					now.Advance(minRefetch)
					if keys, err := set.Keys(t.Context(), "k"); len(keys) != 1 || err != nil {
						t.Errorf("the next fetch: %d keys, %v", len(keys), err)
					}
					fault = f
					now.Advance(defaultMaxAge)
					for range 2 {
						if keys, err := set.Keys(t.Context(), "k"); len(keys) != 1 || err != nil {
							t.Errorf("a held key: %d keys, %v", len(keys), err)
						}
						synctest.Wait()
					}
				})
			})
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRemoteKeySetFetchRefuses(t *testing.T) {
	fetch := func(context.Context) ([]*Key, time.Duration, error) { return nil, time.Minute, nil }
	for name, config := range map[string]RemoteConfig{
		"Client":  {Fetch: fetch, Client: &http.Client{}},
		"JWKSURL": {Fetch: fetch, JWKSURL: keySetURL},
		"Issuer":  {Fetch: fetch, Issuer: "https://issuer.example"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewRemoteKeySet(config); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v, want %v", err, refusal.CheckConfig)
			}
		})
	}
	many := make([]*Key, maxFetchedKeys+1)
	for i := range many {
		many[i] = named(t, fmt.Sprint(i))
	}
	for name, keys := range map[string][]*Key{"no key": nil, "too many": many} {
		t.Run(name, func(t *testing.T) {
			set, err := NewRemoteKeySet(RemoteConfig{Fetch: func(context.Context) ([]*Key, time.Duration, error) { return keys, 0, nil }})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := set.Keys(t.Context(), ""); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, checkKeySet) {
				t.Errorf("got %v, want %v and %v", err, refusal.ErrRetry, checkKeySet)
			}
		})
	}
}

// The headers of a response are bounded where the client's transport has no bound of its own, which
// stays as it is.
func TestRemoteKeySetHeaders(t *testing.T) {
	var size atomic.Int64
	key := jwksOf(t, forgers()[ES256].key)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for left := size.Load(); left > 0; left -= 1024 {
			w.Header().Add("X-Filling", strings.Repeat("a", 1000))
		}
		_, _ = w.Write([]byte(key))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	callers := server.Client().Transport.(*http.Transport)
	for name, c := range map[string]struct {
		http2 bool
		bound int64
		size  int64
		good  bool
	}{
		"HTTP/1, few": {false, 0, maxHeadersSize * 3 / 4, true}, "HTTP/1, many": {false, 0, maxHeadersSize * 5 / 4, false},
		"HTTP/2, few": {true, 0, maxHeadersSize * 3 / 4, true}, "HTTP/2, many": {true, 0, maxHeadersSize * 5 / 4, false},
		"as many as the caller wants": {true, 1 << 20, maxHeadersSize * 5 / 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			transport := callers.Clone()
			transport.MaxResponseHeaderBytes = c.bound
			if !c.http2 {
				transport.TLSClientConfig.NextProtos, transport.ForceAttemptHTTP2 = []string{"http/1.1"}, false
			}
			set, err := NewRemoteKeySet(RemoteConfig{Client: &http.Client{Transport: transport}, JWKSURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			size.Store(c.size)
			keys, err := set.Keys(t.Context(), "k")
			if (len(keys) == 1 && err == nil) != c.good || !c.good && (!errors.Is(err, checkFetch) || !errors.Is(err, refusal.ErrRetry)) {
				t.Errorf("%d keys, %v", len(keys), err)
			}
			if transport.MaxResponseHeaderBytes != c.bound {
				t.Error("the caller's transport has changed")
			}
		})
	}
	for name, client := range map[string]*http.Client{"no transport": {}, "the default one": {Transport: http.DefaultTransport}} {
		own, ok := withBound(client.Transport).(*http.Transport)
		if !ok || own.MaxResponseHeaderBytes != maxHeadersSize || own.Proxy == nil || own == http.DefaultTransport {
			t.Errorf("%s: got %T without a bound or a proxy", name, own)
		}
	}
	if withBound((*http.Transport)(nil)) != http.RoundTripper((*http.Transport)(nil)) {
		t.Error("a nil transport is taken for one")
	}
}

// The error names a page that a portal or a proxy sends instead of a document, and explains a
// status.
func TestRemoteKeySetSaysWhy(t *testing.T) {
	const page = "\r\n<!DOCTYPE html><html><body>Please log in</body></html>"
	discovery := testIssuer + "/.well-known/openid-configuration"
	document := `{"issuer":"` + testIssuer + `","jwks_uri":"` + keySetURL + `"}`
	for name, c := range map[string]struct {
		bodies map[string]string
		want   Check
		says   string
	}{
		"a page for a discovery document": {map[string]string{discovery: page}, checkDiscovery, "a web page"},
		"a page for a key set":            {map[string]string{discovery: document, keySetURL: page}, checkKeySet, "a web page"},
		"no discovery document":           {nil, checkFetch, "the URL of an issuer with a discovery document"},
		"no key set":                      {map[string]string{discovery: document}, checkFetch, "or of a key set"},
	} {
		t.Run(name, func(t *testing.T) {
			set, _ := newOIDC(t, testIssuer, c.bodies)
			if _, err := set.Keys(t.Context(), "k"); !errors.Is(err, c.want) || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v, %q", err, c.want, c.says)
			}
		})
	}
	for status, says := range map[int]string{401: "service account's token", 403: "system:service-account-issuer-discovery", 500: "500 from " + keySetURL + ", want 200"} {
		set, issuer, _ := newRemote(t, nil)
		issuer.set(func(r *http.Request) (*http.Response, error) { return respond(r, status, ""), nil })
		if _, err := set.Keys(t.Context(), "k"); !errors.Is(err, checkFetch) || !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
