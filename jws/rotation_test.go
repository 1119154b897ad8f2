package jws

import (
	"context"
	"crypto/elliptic"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	testPublish = time.Hour
	testRetain  = 24 * time.Hour
)

// namedSigner makes a signer with a key of its own.
func namedSigner(t testing.TB, keyID string) *CryptoSigner {
	t.Helper()
	return newSigner(t, curveKey(elliptic.P256()), SignerOptions{KeyID: keyID})
}

func newRotating(t testing.TB, retired ...*Key) (*RotatingSigner, *clock) {
	t.Helper()
	now := newClock()
	config := RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now}
	for _, key := range retired {
		config.Retired = append(config.Retired, PublishedKey{Key: key, Until: now.Now().Add(testRetain)})
	}
	r, err := NewRotatingSigner(namedSigner(t, "a"), config)
	if err != nil {
		t.Fatal(err)
	}
	return r, now
}

// wantState checks who signs and which keys are published, in their order.
func wantState(t testing.TB, when string, r *RotatingSigner, signs string, published ...string) {
	t.Helper()
	signature, err := r.Sign(context.Background(), []byte("{}"))
	if err != nil || signature.Key.KeyID() != signs {
		t.Errorf("%s: signed by %+v, %v, want %s", when, signature, err, signs)
		return
	}
	keys, err := r.Keys(context.Background(), "")
	var ids []string
	for _, key := range keys {
		ids = append(ids, key.KeyID())
		one, err := r.Keys(context.Background(), key.KeyID())
		if err != nil || len(one) != 1 || one[0] != key {
			t.Errorf("%s: %v, %v", when, one, err)
		}
	}
	if err != nil || !slices.Equal(ids, published) {
		t.Errorf("%s: published %v, %v, want %v", when, ids, err, published)
	}
	if _, err := VerifySignature(context.Background(), signature.Token([]byte("{}")), r); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

func TestRotatingSigner(t *testing.T) {
	r, now := newRotating(t)
	wantState(t, "at first", r, "a", "a")
	from, err := r.Rotate(namedSigner(t, "b"))
	if err != nil || !from.Equal(now.Now().Add(testPublish)) {
		t.Errorf("%v, %v", from, err)
	}
	wantState(t, "published", r, "a", "a", "b")
	now.Advance(testPublish - 1)
	wantState(t, "not yet", r, "a", "a", "b")
	now.Advance(1)
	wantState(t, "taken over", r, "b", "b", "a")
	if _, err := r.Rotate(namedSigner(t, "c")); err != nil {
		t.Error(err)
	}
	wantState(t, "the next", r, "b", "b", "c", "a")
	now.Advance(testPublish)
	wantState(t, "the next took over", r, "c", "c", "b", "a")
	now.Advance(testRetain - testPublish - 1)
	wantState(t, "the last moment of a", r, "c", "c", "b", "a")
	now.Advance(1)
	wantState(t, "without a", r, "c", "c", "b")
	now.Advance(testPublish)
	wantState(t, "without b", r, "c", "c")
	if keys, err := r.Keys(context.Background(), "b"); err != nil || len(keys) != 0 {
		t.Errorf("%v, %v", keys, err)
	}
	// A key that was published once may come back.
	if _, err := r.Rotate(namedSigner(t, "a")); err != nil {
		t.Error(err)
	}
}

func TestRotatingSignerPublished(t *testing.T) {
	old := named(t, "old")
	r, now := newRotating(t, old)
	began := now.Now()
	if _, err := r.Rotate(namedSigner(t, "b")); err != nil {
		t.Fatal(err)
	}
	got := r.Published()
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []PublishedKey{
		{Key: got[0].Key},
		{Key: got[1].Key, SignsFrom: began.Add(testPublish)},
		{Key: old, Until: began.Add(testRetain)},
	} {
		if got[i] != want {
			t.Errorf("%d: got %+v, want %+v", i, got[i], want)
		}
	}
	now.Advance(testPublish)
	if got := r.Published(); !got[0].SignsFrom.IsZero() || !got[1].Until.Equal(began.Add(testPublish+testRetain)) {
		t.Errorf("%+v", got)
	}
	wantState(t, "with an old key", r, "b", "b", "a", "old")
}

func TestRotatingSignerRotateRefuses(t *testing.T) {
	r, now := newRotating(t, named(t, "old"))
	refuse := func(what string, s KeySigner) {
		t.Helper()
		_, err := r.Rotate(s)
		refusedFor(t, what, err, refusal.CheckConfig)
	}
	refuse("nil", nil)
	refuse("no key", new(CryptoSigner))
	refuse("the same", namedSigner(t, "a"))
	refuse("an old one", namedSigner(t, "old"))
	if _, err := r.Rotate(namedSigner(t, "b")); err != nil {
		t.Fatal(err)
	}
	refuse("another on its way", namedSigner(t, "c"))
	refuse("the same on its way", namedSigner(t, "b"))
	now.Advance(testPublish - 1)
	refuse("still on its way", namedSigner(t, "c"))
	wantState(t, "unchanged", r, "a", "a", "b", "old")
	now.Advance(1)
	refuse("the one that signs", namedSigner(t, "b"))
	refuse("the one before", namedSigner(t, "a"))
}

func TestRotatingSignerRevoke(t *testing.T) {
	r, now := newRotating(t, named(t, "old"), named(t, "older"))
	revoke := func(keyID string, want error) {
		t.Helper()
		if err := r.Revoke(keyID); !errors.Is(err, want) {
			t.Errorf("%s: %v", keyID, err)
		}
	}
	revoke("a", refusal.CheckConfig)
	revoke("x", refusal.CheckConfig)
	revoke("", refusal.CheckConfig)
	revoke("old", nil)
	wantState(t, "without old", r, "a", "a", "older")
	if _, err := r.Rotate(namedSigner(t, "b")); err != nil {
		t.Fatal(err)
	}
	revoke("b", nil)
	wantState(t, "without b", r, "a", "a", "older")
	now.Advance(testPublish)
	wantState(t, "b never signs", r, "a", "a", "older")
	if _, err := r.Rotate(namedSigner(t, "c")); err != nil {
		t.Fatal(err)
	}
	revoke("a", nil)
	wantState(t, "c in place of a", r, "c", "c", "older")
	now.Advance(testPublish)
	wantState(t, "for good", r, "c", "c", "older")
}

func TestNewRotatingSignerRefuses(t *testing.T) {
	first := namedSigner(t, "a")
	many := make([]PublishedKey, maxRetired+1)
	for i := range many {
		many[i] = PublishedKey{Key: named(t, fmt.Sprint(i)), Until: time.Now().Add(time.Hour)}
	}
	good := RotationConfig{Publish: 1, Retain: 1}
	for name, test := range map[string]struct {
		first  KeySigner
		config RotationConfig
	}{
		"no signer":        {nil, good},
		"no key":           {new(CryptoSigner), good},
		"no times":         {first, RotationConfig{}},
		"no Publish":       {first, RotationConfig{Retain: 1}},
		"no Retain":        {first, RotationConfig{Publish: 1}},
		"negative":         {first, RotationConfig{Publish: -1, Retain: 1}},
		"nil among them":   {first, RotationConfig{Publish: 1, Retain: 1, Retired: []PublishedKey{{Until: many[0].Until}}}},
		"no end":           {first, RotationConfig{Publish: 1, Retain: 1, Retired: []PublishedKey{{Key: many[0].Key}}}},
		"the same":         {first, RotationConfig{Publish: 1, Retain: 1, Retired: []PublishedKey{{Key: first.Key(), Until: many[0].Until}}}},
		"one that is next": {first, RotationConfig{Publish: 1, Retain: 1, Retired: []PublishedKey{{Key: many[0].Key, SignsFrom: many[0].Until, Until: many[0].Until}}}},
		"twice":            {first, RotationConfig{Publish: 1, Retain: 1, Retired: []PublishedKey{many[0], many[0]}}},
		"too many retired": {first, RotationConfig{Publish: 1, Retain: 1, Retired: many}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewRotatingSigner(test.first, test.config)
			refusedFor(t, name, err, refusal.CheckConfig)
		})
	}
	good.Retired = many[:maxRetired]
	if r, err := NewRotatingSigner(first, good); err != nil || len(r.Published()) != 1+maxRetired {
		t.Error(err)
	}
}

// liar is a signer that says it has another key than it has. Its type cannot be compared.
type liar struct {
	*CryptoSigner
	key []*Key
}

func (l liar) Key() *Key { return l.key[0] }

func TestRotatingSignerOtherKey(t *testing.T) {
	r, now := newRotating(t)
	for _, said := range []*Key{named(t, "b"), named(t, "c")} { // with and without the same ID
		if _, err := r.Rotate(liar{namedSigner(t, "b"), []*Key{said}}); err != nil {
			t.Fatal(err)
		}
		now.Advance(testPublish)
		_, err := r.Sign(context.Background(), nil)
		refusedFor(t, said.KeyID(), err, checkSignerOutput)
	}
	rsaSigner := newSigner(t, forgers()[RS256].signer, SignerOptions{KeyID: "d"})
	for what, options := range map[string]KeyOptions{"another ID": {KeyID: "e"}, "another algorithm": {KeyID: "d", Algorithm: PS256}} {
		said, err := NewKey(rsaSigner.Key().Public(), options)
		if err != nil {
			t.Fatal(err)
		}
		r, err := NewRotatingSigner(liar{rsaSigner, []*Key{said}}, RotationConfig{Publish: testPublish, Retain: testRetain})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Sign(context.Background(), nil)
		refusedFor(t, what, err, checkSignerOutput)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r, _ = newRotating(t)
	if _, err := r.Sign(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := r.Sign(context.Background(), []byte(strings.Repeat("a", MaxTokenSize))); !errors.Is(err, checkPayloadSize) {
		t.Error(err)
	}
}

// TestRotatingSignerUnderLoad rotates while many sign and verify. Every token verifies
// with the set as it is then, and as long after as the token lives; and no key signs
// before it has been published for as long as was said.
func TestRotatingSignerUnderLoad(t *testing.T) {
	r, now := newRotating(t)
	var mu sync.Mutex
	published := map[string]time.Time{"a": now.Now().Add(-testPublish)}
	stop, turn := make(chan struct{}), make(chan struct{})
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			var tokens []string
			var ends []time.Time
			for {
				select {
				case <-stop:
					return
				case <-turn:
				}
				began := now.Now()
				signature, err := r.Sign(context.Background(), []byte("{}"))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				since := published[signature.Key.KeyID()]
				mu.Unlock()
				if now.Now().Sub(since) < testPublish {
					t.Errorf("%s signed after %v", signature.Key.KeyID(), now.Now().Sub(since))
				}
				tokens, ends = append(tokens, signature.Token([]byte("{}"))), append(ends, began.Add(testRetain))
				for i, token := range tokens {
					_, err := VerifySignature(context.Background(), token, r)
					if err != nil && now.Now().Before(ends[i]) {
						t.Errorf("a token of %v before its end: %v", ends[i].Sub(now.Now()), err)
					}
				}
				if len(tokens) == 16 {
					tokens, ends = nil, nil
				}
			}
		})
	}
	for n := range 20 {
		id := fmt.Sprint(n)
		next := namedSigner(t, id)
		at := now.Now()
		mu.Lock()
		published[id] = at
		mu.Unlock()
		if _, err := r.Rotate(next); err != nil {
			t.Error(err)
		}
		for range 10 {
			now.Advance(testPublish / 5)
			for range 2 { // of four, which are still at it when the time moves on
				turn <- struct{}{}
			}
		}
	}
	close(stop)
	users.Wait()
}

// silent signs nothing and says that all went well.
type silent struct{ KeySigner }

func (silent) Sign(context.Context, []byte) (*Signature, error) { return nil, nil }

// keyless does not say with which key it signed.
type keyless struct{ KeySigner }

func (keyless) Sign(context.Context, []byte) (*Signature, error) { return new(Signature), nil }

func TestRotatingSignerNothing(t *testing.T) {
	first := namedSigner(t, "first")
	config := RotationConfig{Publish: time.Minute, Retain: time.Minute}
	for _, signer := range []KeySigner{silent{first}, keyless{first}} {
		r, err := NewRotatingSigner(signer, config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Sign(t.Context(), []byte("{}")); !errors.Is(err, checkSignerOutput) {
			t.Errorf("%T: no signature: %v, want %v", signer, err, checkSignerOutput)
		}
	}
	if _, err := NewRotatingSigner(liar{first, []*Key{{}}}, config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a signer of a zero key: %v, want %v", err, refusal.CheckConfig)
	}
	config.Retired = []PublishedKey{{Key: new(Key), Until: time.Now()}}
	if _, err := NewRotatingSigner(first, config); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a zero key among Retired: %v, want %v", err, refusal.CheckConfig)
	}
}

// TestRotatingSignerZero calls a signer that was not made.
func TestRotatingSignerZero(t *testing.T) {
	for name, r := range map[string]*RotatingSigner{"zero": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Sign(t.Context(), nil)
			refusedFor(t, "Sign", err, refusal.CheckConfig)
			keys, err := r.Keys(t.Context(), "")
			refusedFor(t, "Keys", err, refusal.CheckConfig)
			_, rotateErr := r.Rotate(namedSigner(t, "b"))
			refusedFor(t, "Rotate", rotateErr, refusal.CheckConfig)
			refusedFor(t, "Revoke", r.Revoke("a"), refusal.CheckConfig)
			if published := r.Published(); keys != nil || published != nil {
				t.Errorf("%v, %v", keys, published)
			}
		})
	}
}

func TestRotatingSignerOverlap(t *testing.T) {
	r, _ := newRotating(t)
	if publish, retain := r.Overlap(); publish != testPublish || retain != testRetain {
		t.Errorf("%v, %v", publish, retain)
	}
}

// A clock that is ahead for a while loses no key.
func TestRotatingSignerClockAhead(t *testing.T) {
	r, now := newRotating(t)
	if _, err := r.Rotate(namedSigner(t, "b")); err != nil {
		t.Fatal(err)
	}
	now.Advance(365 * 24 * time.Hour)
	wantState(t, "ahead", r, "b", "b")
	now.Advance(-365 * 24 * time.Hour)
	wantState(t, "set right", r, "a", "a", "b")
}
