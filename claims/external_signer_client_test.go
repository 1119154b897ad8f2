package claims

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
)

// A testClock is a clock that stands until it is moved.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *testClock { return &testClock{now: time.Unix(1700000000, 0)} }

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func newClient(t testing.TB, s ExternalSigner, c *testClock) *ExternalClient {
	t.Helper()
	client, err := NewExternalClient(testContext, s, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestExternalClientSigns(t *testing.T) {
	key, _ := p256Key(t)
	c := newClient(t, scripted(t, key, "a"), newClock())
	if got := c.MaxTokenLifetime(); got != time.Hour {
		t.Error(got)
	}
	payload := []byte(`{"iss":"x"}`)
	signature, err := c.Sign(testContext, payload)
	if err != nil {
		t.Fatal(err)
	}
	verified, err := jws.Verify(testContext, signature.Token(payload), c)
	if err != nil || string(verified.Payload) != string(payload) || verified.Key.KeyID() != "a" {
		t.Errorf("%+v, %v", verified, err)
	}
}

func TestNewExternalClientRefuses(t *testing.T) {
	key, _ := p256Key(t)
	down := errors.New("down")
	for what, tt := range map[string]struct {
		change func(*scriptedSigner)
		want   Check
	}{
		"keys down": {func(s *scriptedSigner) { s.keys = func() (*ExternalKeys, error) { return nil, down } }, ErrRetry},
		"nil keys":  {func(s *scriptedSigner) { s.keys = func() (*ExternalKeys, error) { return nil, nil } }, CheckSignerKeys},
		"no keys":   {func(s *scriptedSigner) { s.keys = func() (*ExternalKeys, error) { return &ExternalKeys{}, nil } }, CheckSignerKeys},
		"metadata down": {func(s *scriptedSigner) {
			s.metadata = func() (*ExternalMetadata, error) { return nil, down }
		}, ErrRetry},
		"nil metadata": {func(s *scriptedSigner) {
			s.metadata = func() (*ExternalMetadata, error) { return nil, nil }
		}, CheckSignerMetadata},
		"short tokens": {func(s *scriptedSigner) {
			s.metadata = func() (*ExternalMetadata, error) { return &ExternalMetadata{599}, nil }
		}, CheckSignerMetadata},
	} {
		s := scripted(t, key, "a")
		tt.change(s)
		if c, err := NewExternalClient(testContext, s, nil); c != nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		}
	}
	if _, err := NewExternalClient(testContext, nil, nil); !errors.Is(err, CheckConfig) {
		t.Error(err)
	}
}

func TestExternalClientSignFails(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	c := newClient(t, s, newClock())
	sign := s.sign
	for what, tt := range map[string]struct {
		sign func(string) (*ExternalSignature, error)
		want Check
	}{
		"refused":      {func(string) (*ExternalSignature, error) { return nil, &Error{Check: CheckSignerClaims} }, CheckSignerClaims},
		"down":         {func(string) (*ExternalSignature, error) { return nil, errors.New("down") }, ErrRetry},
		"nothing":      {func(string) (*ExternalSignature, error) { return nil, nil }, CheckSignerHeader},
		"an empty one": {func(string) (*ExternalSignature, error) { return &ExternalSignature{}, nil }, CheckSignerHeader},
		"other claims": {func(string) (*ExternalSignature, error) { return sign(encode(`{}`)) }, CheckSignerSignature},
		"unpublished": {func(claims string) (*ExternalSignature, error) {
			return es256(t, key, `{"alg":"ES256","kid":"b","typ":"JWT"}`, claims), nil
		}, CheckSignerKey},
	} {
		s.sign = tt.sign
		if signature, err := c.Sign(testContext, []byte(`{"iss":"x"}`)); signature != nil || !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		} else if errors.Is(err, ErrRetry) != (tt.want == ErrRetry) {
			t.Errorf("%s: %v is a refusal and a retry", what, err)
		}
	}
}

// A key that is not known is asked for, but not more often than once a second.
func TestExternalClientUnknownKey(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	clock := newClock()
	c := newClient(t, s, clock)
	want := func(id string, keys, fetches int) {
		t.Helper()
		got, err := c.Keys(testContext, id)
		if err != nil || len(got) != keys || s.fetches != fetches {
			t.Fatalf("%d keys, %v, %d fetches, want %d, %d", len(got), err, s.fetches, keys, fetches)
		}
	}
	want("a", 1, 1)
	want("", 1, 1)
	want("b", 0, 1)
	clock.Add(time.Second)
	want("a", 1, 1)
	want("b", 0, 2)
	want("c", 0, 2)
	s.keys = scripted(t, key, "a", "b").keys
	clock.Add(time.Second)
	want("b", 1, 3)
	want("", 2, 3)
	// An answer that never came is no answer, and not asked for again at once.
	s.keys = func() (*ExternalKeys, error) { return nil, errors.New("down") }
	clock.Add(time.Second)
	if _, err := c.Keys(testContext, "c"); !errors.Is(err, ErrRetry) {
		t.Error(err)
	}
	if _, err := c.Keys(testContext, "c"); !errors.Is(err, ErrRetry) || s.fetches != 4 {
		t.Errorf("soon after: %v, %d fetches, want %v, 4", err, s.fetches, ErrRetry)
	}
	want("a", 1, 4)
}

// Keys are fetched again when the hint has passed, and kept while that fails.
func TestExternalClientRefreshes(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	clock := newClock()
	c := newClient(t, s, clock)
	want := func(keys, fetches int, age time.Duration) {
		t.Helper()
		got, maxAge, err := c.PublishedKeys(testContext)
		if err != nil || len(got) != keys || s.fetches != fetches || maxAge != age {
			t.Fatalf("%d keys, %v, %v, %d fetches, want %d, %v, %d", len(got), maxAge, err, s.fetches, keys, age, fetches)
		}
	}
	want(1, 1, time.Minute)
	clock.Add(time.Minute - 1)
	want(1, 1, 1)
	s.keys = func() (*ExternalKeys, error) { return nil, errors.New("down") }
	clock.Add(1)
	want(1, 2, 0)
	want(1, 2, 10*time.Second)
	s.keys = func() (*ExternalKeys, error) { return &ExternalKeys{}, nil }
	clock.Add(10 * time.Second)
	want(1, 3, 0)
	s.keys = scripted(t, key, "b", "c").keys
	clock.Add(10 * time.Second)
	want(2, 4, time.Minute)
	if got, err := c.Keys(testContext, "a"); err != nil || len(got) != 0 {
		t.Errorf("%d keys, %v", len(got), err)
	}
}

// A hint of a thousand years does not overflow.
func TestExternalClientLongHint(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	keys := s.keys
	s.keys = func() (*ExternalKeys, error) {
		k, err := keys()
		k.RefreshHintSeconds = 1<<63 - 1
		return k, err
	}
	c := newClient(t, s, newClock())
	if _, maxAge, err := c.PublishedKeys(testContext); err != nil || maxAge != 182*24*time.Hour {
		t.Error(maxAge, err)
	}
}

// Many callers cause one fetch, and one whose context ends does not wait.
func TestExternalClientConcurrent(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	clock := newClock()
	c := newClient(t, s, clock)
	clock.Add(time.Minute)
	keys, started, finish := s.keys, make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.keys = func() (*ExternalKeys, error) {
		once.Do(func() { close(started) })
		<-finish
		return keys()
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := c.Keys(testContext, "a"); err != nil || len(got) != 1 {
				t.Error(got, err)
			}
		})
	}
	<-started
	ctx, cancel := context.WithCancel(testContext)
	cancel()
	if _, err := c.Keys(ctx, "unknown"); !errors.Is(err, ErrRetry) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, err := c.Keys(ctx, "a"); err != nil || len(got) != 1 {
		t.Error("no old keys for one that does not wait", err)
	}
	close(finish)
	wg.Wait()
	if s.fetches != 2 {
		t.Errorf("%d fetches, want 2", s.fetches)
	}
}
