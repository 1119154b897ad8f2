package jws

import (
	"context"
	"crypto/elliptic"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// hang lets the issuer take requests and never answer.
func (i *fakeIssuer) hang() {
	i.set(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
}

// However many ask at once, one fetch is made. Whose context ends leaves at once, even if
// it asked first; the others get the keys.
func TestRemoteKeySetSingleFlight(t *testing.T) {
	forgers()
	synctest.Test(t, func(t *testing.T) {
		set, issuer, _ := newRemote(t, nil)
		set.waiting = make(chan struct{}, 3*maxUnknown+1)
		serve := *issuer.answer.Load()
		release := make(chan struct{})
		issuer.set(func(r *http.Request) (*http.Response, error) {
			<-release
			return serve(r)
		})
		first, cancel := context.WithCancel(context.Background())
		left := make(chan error, 1)
		go func() {
			_, err := set.Keys(first, "k")
			left <- err
		}()
		synctest.Wait()
		var waiting sync.WaitGroup
		for n := range 3 * maxUnknown { // every other one with an unknown ID
			waiting.Go(func() {
				want := 1
				keyID := "k"
				if n%2 == 1 {
					want, keyID = 0, fmt.Sprint(n)
				}
				keys, err := set.Keys(context.Background(), keyID)
				if err != nil || len(keys) != want {
					t.Errorf("%q: %d keys, %v", keyID, len(keys), err)
				}
			})
		}
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) || !errors.Is(err, refusal.ErrRetry) {
			t.Error(err)
		}
		close(release)
		waiting.Wait()
		if got := issuer.requests.Load(); got != 1 {
			t.Errorf("%d requests", got)
		}
		if got := len(set.unknown); got > maxUnknown {
			t.Errorf("%d unknown key IDs are kept", got)
		}
	})
}

// An issuer that hangs does not delay known keys, under traffic, for as long as they are
// served at all; each fetch ends after Timeout.
func TestRemoteKeySetIssuerHangs(t *testing.T) {
	forgers()
	synctest.Test(t, func(t *testing.T) {
		set, issuer, now := newRemote(t, nil)
		if _, err := set.Keys(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
		issuer.hang()
		until := set.Status().ServedUntil
		for now.Now().Before(until) {
			before := time.Now()
			keys, err := set.Keys(context.Background(), "k")
			if len(keys) != 1 || err != nil || time.Since(before) != 0 {
				t.Fatalf("%v after %v: %d keys, %v", now.Now(), time.Since(before), len(keys), err)
			}
			now.Advance(5 * time.Second)
			time.Sleep(5 * time.Second)
		}
		before := time.Now()
		_, err := set.Keys(context.Background(), "k")
		if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) || time.Since(before) > fetchTimeout {
			t.Errorf("%v: %v", time.Since(before), err)
		}
		if status := set.Status(); status.Failures < 24*60*60/20-2 {
			t.Errorf("%d failures", status.Failures)
		}
	})
}

// While an issuer hangs, no more calls wait for it than was said, however many key IDs are
// invented; the next one fails at once. Held keys need no wait, and a call that leaves makes
// room for another.
func TestRemoteKeySetWaiting(t *testing.T) {
	forgers()
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		set, issuer, now := newRemote(t, nil)
		set.waiting = make(chan struct{}, most)
		wantKeys(t, set, issuer, "k", 1, 1)
		issuer.hang()
		now.Advance(minRefetch)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiting atomic.Int64
		ask := func(n int) {
			waiting.Add(1)
			defer waiting.Add(-1)
			if _, err := set.Keys(ctx, fmt.Sprint(n)); !errors.Is(err, refusal.ErrRetry) || errors.Is(err, checkBusy) {
				t.Errorf("%d: %v", n, err)
			}
		}
		for n := range most {
			go ask(n)
		}
		synctest.Wait()
		before := time.Now()
		for n := range 100 {
			if _, err := set.Keys(t.Context(), fmt.Sprint("more ", n)); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, checkBusy) {
				t.Fatalf("one more: %v", err)
			}
		}
		if keys, err := set.Keys(t.Context(), "k"); len(keys) != 1 || err != nil {
			t.Errorf("a held key: %v, %v", keys, err)
		}
		if waiting.Load() != most || time.Since(before) != 0 {
			t.Errorf("%d wait, after %v", waiting.Load(), time.Since(before))
		}
		cancel()
		synctest.Wait()
		if waiting.Load() != 0 {
			t.Errorf("%d wait still", waiting.Load())
		}
		ctx = t.Context()
		go ask(most)
		synctest.Wait()
		time.Sleep(fetchTimeout)
		synctest.Wait()
		if waiting.Load() != 0 {
			t.Errorf("%d wait longer than a fetch may take", waiting.Load())
		}
	})
}

// TestRemoteKeySetFlood verifies 10,000 tokens a second with unknown key IDs: one
// fetch at most in MinRefetch, bounded memory, and good tokens verify among them.
func TestRemoteKeySetFlood(t *testing.T) {
	const seconds, perSecond, workers = 35, 10_000, 8
	set, issuer, now := newRemote(t, nil)
	var mu sync.Mutex
	var fetches []time.Time
	serve := *issuer.answer.Load()
	issuer.set(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		fetches = append(fetches, now.Now())
		mu.Unlock()
		return serve(r)
	})
	good := forgers()[ES256].good(t)
	var sent atomic.Int64
	var flood sync.WaitGroup
	for range workers {
		flood.Go(func() {
			for {
				n := sent.Add(1)
				if n > seconds*perSecond {
					return
				}
				now.Advance(time.Second / perSecond)
				token := b64(fmt.Sprintf(`{"alg":"ES256","kid":"unknown-%d"}`, n)) + ".e30.AAAA"
				if _, err := VerifySignature(context.Background(), token, set); !errors.Is(err, CheckKeyID) {
					t.Errorf("%d: %v", n, err)
				}
				if n%perSecond == 0 {
					if _, err := VerifySignature(context.Background(), good, set); err != nil {
						t.Errorf("%d: %v", n, err)
					}
				}
			}
		})
	}
	flood.Wait()
	if len(fetches) < 2 || len(fetches) > 1+seconds/10 {
		t.Errorf("%d fetches in %d s", len(fetches), seconds)
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	if len(set.unknown) > maxUnknown {
		t.Errorf("%d unknown key IDs are kept", len(set.unknown))
	}
}

// TestRemoteKeySetServerKilled kills and restores a real server, again and again, while
// many verify tokens: none of a known key is lost, and afterwards a new key is found.
func TestRemoteKeySetServerKilled(t *testing.T) {
	var down atomic.Bool
	var served atomic.Pointer[[]byte]
	serve := func(keys ...*Key) {
		body, err := MarshalJWKS(keys)
		if err != nil {
			t.Fatal(err)
		}
		served.Store(&body)
	}
	f := forgers()[ES256]
	serve(f.key)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler) // the connection breaks
		}
		w.Header().Set("Cache-Control", "max-age=60")
		_, _ = w.Write(*served.Load())
	}))
	defer server.Close()
	now := newClock()
	set, err := NewRemoteKeySet(RemoteConfig{Client: server.Client(), JWKSURL: server.URL, Now: now.Now})
	if err != nil {
		t.Fatal(err)
	}
	good := f.good(t)
	if _, err := VerifySignature(context.Background(), good, set); err != nil {
		t.Fatal(err)
	}

	stop := make(chan struct{})
	var verifiers sync.WaitGroup
	for range 4 {
		verifiers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := VerifySignature(context.Background(), good, set); err != nil {
					t.Error(err)
					return
				}
				now.Advance(100 * time.Millisecond)
			}
		})
	}
	for range 3 {
		down.Store(true)
		for set.Status().Failures < 3 {
			time.Sleep(time.Millisecond)
		}
		down.Store(false)
		for set.Status().Failures > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	close(stop)
	verifiers.Wait()

	// A new key signs after a server was down for good and came back.
	fresh := newSigner(t, curveKey(elliptic.P256()), SignerOptions{KeyID: "fresh"})
	signature, err := fresh.Sign(context.Background(), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	serve(f.key, fresh.Key())
	// A fetch that was under way may end with the old keys, and the key is unknown for long.
	for _, later := range []time.Duration{minRefetch, negativeTTL} {
		now.Advance(later)
		if _, err = VerifySignature(context.Background(), signature.Token([]byte("{}")), set); err == nil {
			return
		}
	}
	t.Error(err)
}
