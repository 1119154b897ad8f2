package extsigner

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// inClient runs a test with a client of a signer with the keys a and withdrawn, whose
// clock is that of the bubble.
func inClient(t *testing.T, opts ClientOptions, test func(t *testing.T, c *Client, s *scriptedSigner)) {
	t.Helper()
	key, _ := p256Key(t)
	s := scripted(t, key, "a", "withdrawn")
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, s, opts)
		test(t, c, s)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if _, err := c.Keys(t.Context(), "a"); !errors.Is(err, jws.ErrClosed) {
			t.Errorf("after Close: %v, want %v", err, jws.ErrClosed)
		}
	})
}

// wantKeys asks for a key ID and lets the fetch that this may have caused end.
func wantKeys(ctx context.Context, t *testing.T, c *Client, id string, keys int) {
	t.Helper()
	got, err := c.Keys(ctx, id)
	if err != nil || len(got) != keys {
		t.Fatalf("%q: %d keys, %v, want %d", id, len(got), err, keys)
	}
	synctest.Wait()
}

func wantFetches(t *testing.T, s *scriptedSigner, want int64) {
	t.Helper()
	if got := s.fetches.Load(); got != want {
		t.Fatalf("%d fetches, want %d", got, want)
	}
}

func hangUntilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func gone(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestClientCallersLeave: whoever hangs up at once and comes first each time does
// not keep the keys from being fetched: a withdrawn one is refused a fetch after the hint.
func TestClientCallersLeave(t *testing.T) {
	key, _ := p256Key(t)
	inClient(t, ClientOptions{}, func(t *testing.T, c *Client, s *scriptedSigner) {
		s.keys = scripted(t, key, "a").keys
		s.fetching = func(ctx context.Context) error { // as a client of a socket does
			time.Sleep(5 * time.Millisecond)
			return ctx.Err()
		}
		left := gone(t)
		served := 0
		for range 120 {
			time.Sleep(time.Second)
			for range 12 {
				_, _ = c.Keys(left, "withdrawn")
			}
			got, err := c.Keys(t.Context(), "withdrawn")
			if err != nil {
				t.Fatal(err)
			}
			served += len(got)
			synctest.Wait()
		}
		if served > 61 {
			t.Errorf("the withdrawn key was served for %d seconds, want about 60", served)
		}
	})
}

// TestClientNewKeyAndCallersLeave: nor do they keep a new key unknown.
func TestClientNewKeyAndCallersLeave(t *testing.T) {
	key, _ := p256Key(t)
	inClient(t, ClientOptions{}, func(t *testing.T, c *Client, s *scriptedSigner) {
		s.keys = scripted(t, key, "a", "new").keys
		s.fetching = func(ctx context.Context) error { return ctx.Err() }
		left, found := gone(t), 0
		for range 10 {
			time.Sleep(time.Second)
			for i := range 12 {
				_, _ = c.Keys(left, strconv.Itoa(i))
			}
			if got, err := c.Keys(t.Context(), "new"); err == nil {
				found += len(got)
			}
			synctest.Wait()
		}
		if found < 9 {
			t.Errorf("the new key was found in %d of 10 seconds", found)
		}
	})
}

// TestClientSignerHangs: nobody waits for a held key, however long ago it was
// fetched and however many ask, until it is too old; then it is not served.
func TestClientSignerHangs(t *testing.T) {
	inClient(t, ClientOptions{MaxStale: 10 * time.Minute}, func(t *testing.T, c *Client, s *scriptedSigner) {
		s.fetching = hangUntilDone
		for _, idle := range []time.Duration{time.Minute, 0, time.Second, 5 * time.Minute, 4*time.Minute + 59*time.Second - 1} {
			time.Sleep(idle)
			start := time.Now()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					if got, err := c.Keys(t.Context(), "a"); err != nil || len(got) != 1 {
						t.Errorf("%d keys, %v", len(got), err)
					}
				})
			}
			wg.Wait()
			if waited := time.Since(start); waited != 0 {
				t.Errorf("waited for %v after %v", waited, idle)
			}
			if _, _, err := c.DiscoveryKeys(t.Context()); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Nanosecond) // the hint and MaxStale have passed to the nanosecond
		for _, id := range []string{"a", ""} {
			if got, err := c.Keys(t.Context(), id); got != nil || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("%q: %d keys that are too old, %v", id, len(got), err)
			}
		}
		if _, _, err := c.DiscoveryKeys(t.Context()); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("published keys that are too old: %v", err)
		}
	})
}

// TestClientDefaultStaleness is the stated maximum.
func TestClientDefaultStaleness(t *testing.T) {
	inClient(t, ClientOptions{}, func(t *testing.T, c *Client, s *scriptedSigner) {
		s.keys = func() (*Keys, error) { return nil, errors.New("down") }
		time.Sleep(time.Minute + defaultMaxKeyStaleness - 1)
		wantKeys(t.Context(), t, c, "a", 1)
		time.Sleep(time.Nanosecond)
		if _, err := c.Keys(t.Context(), "a"); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("got %v, want %v", err, refusal.ErrRetry)
		}
	})
}

// A key that is not known is asked for, but not more often than once a second.
func TestClientUnknownKey(t *testing.T) {
	key, _ := p256Key(t)
	inClient(t, ClientOptions{}, func(t *testing.T, c *Client, s *scriptedSigner) {
		want := func(id string, keys int, fetches int64) {
			t.Helper()
			wantKeys(t.Context(), t, c, id, keys)
			wantFetches(t, s, fetches)
		}
		want("a", 1, 1)
		want("", 2, 1)
		want("b", 0, 1)
		time.Sleep(time.Second - 1)
		want("b", 0, 1)
		time.Sleep(time.Nanosecond)
		want("a", 1, 1)
		want("b", 0, 2)
		want("c", 0, 2)
		s.keys = scripted(t, key, "a", "b").keys
		time.Sleep(time.Second)
		want("b", 1, 3)
		want("", 2, 3)
		// An answer that never came is no answer, and not asked for again at once.
		s.keys = func() (*Keys, error) { return nil, errors.New("down") }
		time.Sleep(time.Second)
		for range 2 {
			if _, err := c.Keys(t.Context(), "c"); !errors.Is(err, refusal.ErrRetry) {
				t.Error(err)
			}
			wantFetches(t, s, 4)
		}
		want("a", 1, 4)
		// One whose context ends does not wait for it.
		s.fetching = hangUntilDone
		time.Sleep(time.Second)
		if _, err := c.Keys(gone(t), "c"); !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// Keys are fetched again when the hint has passed, and kept while that fails.
func TestClientRefreshes(t *testing.T) {
	key, _ := p256Key(t)
	inClient(t, ClientOptions{}, func(t *testing.T, c *Client, s *scriptedSigner) {
		want := func(keys int, fetches int64, age time.Duration) {
			t.Helper()
			got, maxAge, err := c.DiscoveryKeys(t.Context())
			if err != nil || len(got) != keys || maxAge != age {
				t.Fatalf("%d keys, %v, %v, want %d, %v", len(got), maxAge, err, keys, age)
			}
			synctest.Wait()
			wantFetches(t, s, fetches)
		}
		want(2, 1, time.Minute)
		time.Sleep(time.Minute - 1)
		want(2, 1, 1)
		s.keys = func() (*Keys, error) { return nil, errors.New("down") }
		time.Sleep(time.Nanosecond)
		want(2, 2, 0)
		want(2, 2, 0)
		s.keys = func() (*Keys, error) { return &Keys{}, nil }
		time.Sleep(time.Second)
		want(2, 3, 0)
		s.keys = scripted(t, key, "b", "c", "d").keys
		time.Sleep(time.Second)
		if _, _, err := c.DiscoveryKeys(t.Context()); err != nil { // with the old keys, or the new
			t.Fatal(err)
		}
		synctest.Wait()
		want(3, 4, time.Minute)
		wantKeys(t.Context(), t, c, "withdrawn", 0)
	})
}

// A hint of a thousand years counts as a day.
func TestClientLongHint(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	keys := s.keys
	s.keys = func() (*Keys, error) {
		k, err := keys()
		k.RefreshHintSeconds = 1<<63 - 1
		return k, err
	}
	c := newClient(t, s, ClientOptions{Now: newClock().Now})
	if _, maxAge, err := c.DiscoveryKeys(testContext); err != nil || maxAge != maxRefreshHint {
		t.Error(maxAge, err)
	}
}
