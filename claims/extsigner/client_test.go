package extsigner

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
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

func newClient(t testing.TB, s Signer, opts ClientOptions) *Client {
	t.Helper()
	client, err := NewClient(testContext, s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestClientSigns(t *testing.T) {
	key, _ := p256Key(t)
	c := newClient(t, scripted(t, key, "a"), ClientOptions{})
	if got := c.MaxTokenLifetime(); got != time.Hour {
		t.Error(got)
	}
	payload := []byte(`{"iss":"x"}`)
	signature, err := c.Sign(testContext, payload)
	if err != nil {
		t.Fatal(err)
	}
	verified, err := jws.VerifySignature(testContext, signature.Token(payload), c)
	if err != nil || string(verified.Payload) != string(payload) || verified.Key.KeyID() != "a" {
		t.Errorf("%+v, %v", verified, err)
	}
}

func TestNewClientRefuses(t *testing.T) {
	key, _ := p256Key(t)
	down := errors.New("down")
	for what, tt := range map[string]struct {
		change func(*scriptedSigner)
		want   Check
	}{
		"keys down": {func(s *scriptedSigner) { s.keys = func() (*Keys, error) { return nil, down } }, refusal.ErrRetry},
		"nil keys":  {func(s *scriptedSigner) { s.keys = func() (*Keys, error) { return nil, nil } }, checkSignerKeys},
		"no keys":   {func(s *scriptedSigner) { s.keys = func() (*Keys, error) { return &Keys{}, nil } }, checkSignerKeys},
		"metadata down": {func(s *scriptedSigner) {
			s.metadata = func() (*Metadata, error) { return nil, down }
		}, refusal.ErrRetry},
		"nil metadata": {func(s *scriptedSigner) {
			s.metadata = func() (*Metadata, error) { return nil, nil }
		}, checkSignerMetadata},
		"short tokens": {func(s *scriptedSigner) {
			s.metadata = func() (*Metadata, error) { return &Metadata{599}, nil }
		}, checkSignerMetadata},
	} {
		t.Run(what, func(t *testing.T) {
			s := scripted(t, key, "a")
			tt.change(s)
			if c, err := NewClient(testContext, s, ClientOptions{}); c != nil || !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", what, err, tt.want)
			} else if errors.Is(err, refusal.ErrRetry) != (tt.want == refusal.ErrRetry) {
				t.Errorf("%s: %v is a refusal and a retry", what, err)
			}
		})
	}
	if _, err := NewClient(testContext, nil, ClientOptions{}); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
	if _, err := NewClient(testContext, scripted(t, key, "a"), ClientOptions{MaxStale: -1}); !errors.Is(err, refusal.CheckConfig) {
		t.Error(err)
	}
}

func TestClientSignFails(t *testing.T) {
	key, _ := p256Key(t)
	s := scripted(t, key, "a")
	c := newClient(t, s, ClientOptions{})
	sign := s.sign
	for what, tt := range map[string]struct {
		sign func(string) (*Signature, error)
		want Check
	}{
		"refused":      {func(string) (*Signature, error) { return nil, &Error{Check: checkSignerClaims} }, checkSignerClaims},
		"down":         {func(string) (*Signature, error) { return nil, errors.New("down") }, refusal.ErrRetry},
		"nothing":      {func(string) (*Signature, error) { return nil, nil }, checkSignerHeader},
		"an empty one": {func(string) (*Signature, error) { return &Signature{}, nil }, checkSignerHeader},
		"other claims": {func(string) (*Signature, error) { return sign(encode(`{}`)) }, checkSignerSignature},
		"unpublished": {func(segment string) (*Signature, error) {
			return es256(t, key, `{"alg":"ES256","kid":"b","typ":"JWT"}`, segment), nil
		}, checkSignerKey},
	} {
		t.Run(what, func(t *testing.T) {
			s.sign = tt.sign
			if signature, err := c.Sign(testContext, []byte(`{"iss":"x"}`)); signature != nil || !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", what, err, tt.want)
			} else if errors.Is(err, refusal.ErrRetry) != (tt.want == refusal.ErrRetry) {
				t.Errorf("%s: %v is a refusal and a retry", what, err)
			}
		})
	}
}
