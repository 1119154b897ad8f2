package extsigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

var testContext = context.Background()

const testIssuer = "https://issuer.example"

// newECDSA makes a signer with a new P-256 key.
func newECDSA(t testing.TB, typ string) *jws.CryptoSigner {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s, err := jws.NewSigner(key, jws.SignerOptions{Type: typ})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type signerFunc func(ctx context.Context, payload []byte) (*jws.Signature, error)

func (f signerFunc) Sign(ctx context.Context, payload []byte) (*jws.Signature, error) {
	return f(ctx, payload)
}

type keySetFunc func(context.Context, string) ([]*jws.Key, error)

func (f keySetFunc) Keys(ctx context.Context, keyID string) ([]*jws.Key, error) {
	return f(ctx, keyID)
}

// wantCheck fails the test unless err is a refusal by that check.
func wantCheck(t testing.TB, err error, want refusal.Check) {
	t.Helper()
	e, ok := errors.AsType[*refusal.Error](err)
	if !ok || e.Check != want || !errors.Is(err, want) {
		t.Errorf("got %v, want the check %s", err, string(want))
	}
}

// A testClock is a clock that stands until it is moved.
type testClock struct{ now time.Time }

func newClock() *testClock { return &testClock{now: time.Unix(1700000000, 0)} }

func (c *testClock) Now() time.Time { return c.now }

func (c *testClock) Add(d time.Duration) { c.now = c.now.Add(d) }
