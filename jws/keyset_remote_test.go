package jws

import (
	"context"
	"crypto/elliptic"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nodeattest/nodeattest/refusal"
)

// A clock is set by a test.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.now.Store(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.now.Load()).UTC() }
func (c *clock) Advance(d time.Duration) { c.now.Add(int64(d)) }

// A fakeIssuer is the transport of a client: it answers without a network.
type fakeIssuer struct {
	requests atomic.Int64
	answer   atomic.Pointer[func(*http.Request) (*http.Response, error)]
}

func (i *fakeIssuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.requests.Add(1)
	return (*i.answer.Load())(r)
}

func (i *fakeIssuer) set(answer func(*http.Request) (*http.Response, error)) { i.answer.Store(&answer) }

// serve lets it answer with these keys and header fields "Name: value".
func (i *fakeIssuer) serve(t testing.TB, keys []*Key, fields ...string) {
	t.Helper()
	body, err := MarshalJWKS(keys)
	if err != nil {
		t.Fatal(err)
	}
	i.set(func(r *http.Request) (*http.Response, error) { return respond(r, 200, string(body), fields...), nil })
}

var errDown = errors.New("the issuer is down")

func (i *fakeIssuer) fail() {
	i.set(func(*http.Request) (*http.Response, error) { return nil, errDown })
}

// respond makes a response.
func respond(r *http.Request, status int, body string, fields ...string) *http.Response {
	recorder := &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Request: r,
		Header: make(http.Header), Body: readCloser{strings.NewReader(body)},
		ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(body)),
	}
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		recorder.Header.Add(name, value)
	}
	return recorder
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

const keySetURL = "https://issuer.example/keys"

// newRemote makes a set over a fake issuer that serves the key "k" for an hour.
func newRemote(t testing.TB, change func(*RemoteConfig)) (*RemoteKeySet, *fakeIssuer, *clock) {
	t.Helper()
	issuer, now := new(fakeIssuer), newClock()
	issuer.serve(t, []*Key{forgers()[ES256].key}, "Cache-Control: public, max-age=3600")
	config := RemoteConfig{Client: &http.Client{Transport: issuer}, JWKSURL: keySetURL, Now: now.Now}
	if change != nil {
		change(&config)
	}
	set, err := NewRemoteKeySet(config)
	if err != nil {
		t.Fatal(err)
	}
	return set, issuer, now
}

// wantKeys checks how many keys a set has for an ID and how many requests that took.
func wantKeys(t testing.TB, set *RemoteKeySet, issuer *fakeIssuer, keyID string, count, requests int) {
	t.Helper()
	before := issuer.requests.Load()
	keys, err := set.Keys(context.Background(), keyID)
	set.mu.Lock()
	started := set.flight // for the next caller
	set.mu.Unlock()
	if started != nil {
		<-started.done
	}
	if err != nil || len(keys) != count {
		t.Errorf("%q: %d keys, %v, want %d", keyID, len(keys), err, count)
	}
	if got := issuer.requests.Load() - before; got != int64(requests) {
		t.Errorf("%q: %d requests, want %d", keyID, got, requests)
	}
}

// wantRetry checks that nothing could be decided, because of cause.
func wantRetry(t testing.TB, set *RemoteKeySet, keyID string, cause error) {
	t.Helper()
	keys, err := set.Keys(context.Background(), keyID)
	if len(keys) != 0 || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, cause) {
		t.Errorf("%q: %d keys, %v, want %v", keyID, len(keys), err, cause)
	}
}

// named makes a key.
func named(t testing.TB, keyID string) *Key {
	t.Helper()
	key, err := NewKey(curveKey(elliptic.P256()).Public(), KeyOptions{KeyID: keyID})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestRemoteKeySetFetchesOnce(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	if issuer.requests.Load() != 0 || set.Status() != (RemoteStatus{}) {
		t.Error("a request before the first call")
	}
	wantKeys(t, set, issuer, "k", 1, 1)
	wantKeys(t, set, issuer, "k", 1, 0)
	wantKeys(t, set, issuer, "", 1, 0)
	now.Advance(time.Hour - 1)
	wantKeys(t, set, issuer, "k", 1, 0)
	wantKeys(t, set, issuer, "", 1, 0)
	status := set.Status()
	began := now.Now().Add(1 - time.Hour)
	want := RemoteStatus{Keys: 1, Fetched: began, FreshUntil: began.Add(time.Hour), ServedUntil: began.Add(25 * time.Hour), Started: began}
	if status != want {
		t.Errorf("got %+v, want %+v", status, want)
	}
}

// The response's max-age counts between MinRefetch and MaxAge.
func TestRemoteKeySetAge(t *testing.T) {
	for name, test := range map[string]struct {
		fields []string
		want   time.Duration
	}{
		"in between":     {[]string{"Cache-Control: max-age=600"}, 10 * time.Minute},
		"longer":         {[]string{"Cache-Control: max-age=86400"}, time.Hour},
		"shorter":        {[]string{"Cache-Control: max-age=1"}, 10 * time.Second},
		"not to be kept": {[]string{"Cache-Control: no-store"}, 10 * time.Second},
		"kept before":    {[]string{"Cache-Control: max-age=600", "Age: 60"}, 9 * time.Minute},
		"unsaid":         {nil, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			set, issuer, now := newRemote(t, nil)
			issuer.serve(t, []*Key{named(t, "a")}, test.fields...)
			wantKeys(t, set, issuer, "a", 1, 1)
			now.Advance(test.want - 1)
			wantKeys(t, set, issuer, "a", 1, 0)
			if got := set.Status(); got.FreshUntil.Sub(got.Fetched) != test.want {
				t.Errorf("fresh for %v", got.FreshUntil.Sub(got.Fetched))
			}
			now.Advance(1)
			wantKeys(t, set, issuer, "a", 1, 1)
		})
	}
}

// A key ID that the issuer does not have is asked for once in NegativeTTL, and no key ID
// more often than MinRefetch allows.
func TestRemoteKeySetUnknown(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	wantKeys(t, set, issuer, "x", 0, 1)
	wantKeys(t, set, issuer, "y", 0, 0) // the interval
	now.Advance(minRefetch - 1)
	wantKeys(t, set, issuer, "y", 0, 0)
	now.Advance(1)
	wantKeys(t, set, issuer, "x", 0, 0) // remembered
	wantKeys(t, set, issuer, "y", 0, 1)
	now.Advance(negativeTTL - minRefetch)
	wantKeys(t, set, issuer, "x", 0, 1)
	wantKeys(t, set, issuer, "k", 1, 0)

	// A key that the issuer adds is found when its ID is asked for.
	issuer.serve(t, []*Key{forgers()[ES256].key, named(t, "z")})
	now.Advance(minRefetch)
	wantKeys(t, set, issuer, "z", 1, 1)
	now.Advance(minRefetch)
	wantKeys(t, set, issuer, strings.Repeat("x", MaxKeyIDSize+1), 0, 0) // no key has such an ID
}

// A key that the issuer takes away is gone when the set was stale for so long that no verifier
// can have asked meanwhile, and one that it replaces is the new one.
func TestRemoteKeySetForgottenForADay(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	wantKeys(t, set, issuer, "k", 1, 1)
	issuer.serve(t, []*Key{named(t, "z")})
	now.Advance(time.Hour + minRefetch + fetchTimeout)
	wantKeys(t, set, issuer, "k", 0, 1)
	wantKeys(t, set, issuer, "z", 1, 0)
}

// While fetches fail, known keys are served until MaxStale, and for others nothing can be
// decided.
func TestRemoteKeySetServesStale(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	wantKeys(t, set, issuer, "k", 1, 1)
	wantKeys(t, set, issuer, "x", 0, 0)
	issuer.fail()
	now.Advance(30 * time.Minute)
	wantRetry(t, set, "x", errDown)
	wantRetry(t, set, "x", errDown) // by the interval
	wantKeys(t, set, issuer, "k", 1, 0)
	for range 24 * 2 {
		now.Advance(30 * time.Minute)
		wantKeys(t, set, issuer, "k", 1, 1)
		wantRetry(t, set, "x", errDown)
	}
	status := set.Status()
	if !errors.Is(status.Err, errDown) || status.Failures != 1+24*2 || status.Keys != 1 {
		t.Errorf("%+v", status)
	}
	now.Advance(status.ServedUntil.Sub(now.Now()) - 1)
	wantKeys(t, set, issuer, "k", 1, 1)
	now.Advance(1)
	wantRetry(t, set, "k", errDown)
	wantRetry(t, set, "", errDown)

	issuer.serve(t, []*Key{forgers()[ES256].key})
	now.Advance(minRefetch)
	wantKeys(t, set, issuer, "k", 1, 1)
	wantKeys(t, set, issuer, "x", 0, 0)
	if status := set.Status(); status.Err != nil || status.Failures != 0 {
		t.Errorf("%+v", status)
	}
}

// Without any key yet, a failed fetch decides nothing, and is not repeated at once.
func TestRemoteKeySetNeverFetched(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	issuer.fail()
	for range 3 {
		before := issuer.requests.Load()
		for _, keyID := range []string{"k", "x", ""} {
			wantRetry(t, set, keyID, errDown)
			wantRetry(t, set, keyID, checkFetch)
		}
		if got := issuer.requests.Load() - before; got != 1 {
			t.Errorf("%d requests", got)
		}
		now.Advance(minRefetch)
	}
	_, err := VerifySignature(context.Background(), forgers()[ES256].good(t), set)
	if !errors.Is(err, refusal.ErrRetry) {
		t.Error(err)
	}
}

// After the clock was set back the age of the held keys is unknown: one that the issuer
// withdrew is not answered for as fresh.
func TestRemoteKeySetClockSetBackWithdrawn(t *testing.T) {
	set, issuer, now := newRemote(t, nil)
	wantKeys(t, set, issuer, "k", 1, 1)
	issuer.serve(t, []*Key{named(t, "z")})
	now.Advance(-1)
	wantKeys(t, set, issuer, "k", 1, 1) // the held one, while the fetch runs
	wantKeys(t, set, issuer, "k", 0, 0)
	wantKeys(t, set, issuer, "z", 1, 0)
}

// A set that was not made answers nothing, and does not panic.
func TestRemoteKeySetZero(t *testing.T) {
	for name, set := range map[string]*RemoteKeySet{"zero": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			for _, keyID := range []string{"", "k"} {
				keys, err := set.Keys(t.Context(), keyID)
				refusedFor(t, "Keys", err, refusal.CheckConfig)
				if keys != nil {
					t.Errorf("keys: %v", keys)
				}
			}
			refusedFor(t, "Status", set.Status().Err, refusal.CheckConfig)
			if _, err := VerifySignature(t.Context(), forgers()[ES256].good(t), set); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("Verify: %v", err)
			}
		})
	}
}

func TestNewRemoteKeySetRefuses(t *testing.T) {
	for name, change := range map[string]func(*RemoteConfig){
		"no client":       func(c *RemoteConfig) { c.Client = nil },
		"no URL":          func(c *RemoteConfig) { c.JWKSURL = "" },
		"both URLs":       func(c *RemoteConfig) { c.Issuer = "https://issuer.example" },
		"http":            func(c *RemoteConfig) { c.JWKSURL = "http://issuer.example/keys" },
		"no scheme":       func(c *RemoteConfig) { c.JWKSURL = "issuer.example/keys" },
		"no host":         func(c *RemoteConfig) { c.JWKSURL = "https:///keys" },
		"only a port":     func(c *RemoteConfig) { c.JWKSURL = "https://:443/keys" },
		"opaque":          func(c *RemoteConfig) { c.JWKSURL = "https:issuer.example" },
		"a password":      func(c *RemoteConfig) { c.JWKSURL = "https://u:secret@issuer.example/keys" },
		"a fragment":      func(c *RemoteConfig) { c.JWKSURL = keySetURL + "#k" },
		"no URL at all":   func(c *RemoteConfig) { c.JWKSURL = "https://%zz/" },
		"http issuer":     func(c *RemoteConfig) { c.JWKSURL, c.Issuer = "", "http://issuer.example" },
		"issuer, query":   func(c *RemoteConfig) { c.JWKSURL, c.Issuer = "", "https://issuer.example?a" },
		"issuer, name":    func(c *RemoteConfig) { c.JWKSURL, c.Issuer = "", "kubernetes/serviceaccount" },
		"MaxAge":          func(c *RemoteConfig) { c.MaxAge = -1 },
		"MaxStale":        func(c *RemoteConfig) { c.MaxStale = -1 },
		"an empty host":   func(c *RemoteConfig) { c.Hosts = []string{""} },
		"a port alone":    func(c *RemoteConfig) { c.Hosts = []string{":443"} },
		"a host's path":   func(c *RemoteConfig) { c.Hosts = []string{"a.example", "b.example/keys"} },
		"a host's user":   func(c *RemoteConfig) { c.Hosts = []string{"u@b.example"} },
		"a wildcard":      func(c *RemoteConfig) { c.Hosts = []string{"*.example"} },
		"a host's port":   func(c *RemoteConfig) { c.Hosts = []string{"b.example:x"} },
		"a URL for hosts": func(c *RemoteConfig) { c.Hosts = []string{"https://b.example"} },
		"short MaxAge":    func(c *RemoteConfig) { c.MaxAge = minRefetch - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			config := RemoteConfig{Client: new(http.Client), JWKSURL: keySetURL}
			if _, err := NewRemoteKeySet(config); err != nil {
				t.Fatal(err)
			}
			change(&config)
			_, err := NewRemoteKeySet(config)
			refusedFor(t, name, err, refusal.CheckConfig)
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// asleep returns a time as it is after a machine slept for that long: the wall clock has moved on,
// the monotonic one has not.
func asleep(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	slept := at.Add(d)
	(*[2]int64)(unsafe.Pointer(&slept))[1] -= int64(d) // where package time keeps the monotonic reading
	if slept.Sub(at) != 0 || slept.Round(0).Sub(at.Round(0)) != d {
		t.Fatalf("%v is not %v and %v of sleep", slept, at, d)
	}
	return slept
}

// A machine that slept past MaxAge and MaxStale serves no key of before.
func TestRemoteKeySetAsleep(t *testing.T) {
	now := time.Now()
	key, fetches := named(t, "a"), 0
	s, err := NewRemoteKeySet(RemoteConfig{Now: func() time.Time { return now }, Fetch: func(context.Context) ([]*Key, time.Duration, error) {
		if fetches++; fetches > 1 {
			return nil, 0, errors.New("down")
		}
		return []*Key{key}, time.Hour, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := s.Keys(t.Context(), "a"); err != nil || len(keys) != 1 {
		t.Fatalf("%v, %v", keys, err)
	}
	now = asleep(t, now, defaultMaxAge+defaultMaxStale)
	if keys, err := s.Keys(t.Context(), "a"); len(keys) != 0 || !errors.Is(err, refusal.ErrRetry) || fetches != 2 {
		t.Errorf("%v, %v after %d fetches", keys, err, fetches)
	}
}
