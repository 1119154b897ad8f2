package jws

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/fuzzing"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestRotatingSignerZero calls a signer that was not made.
func TestRotatingSignerZero(t *testing.T) {
	for name, r := range map[string]*RotatingSigner{"zero": {}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Sign(t.Context(), nil)
			refusedFor(t, "Sign", err, refusal.CheckConfig)
			keys, err := r.Keys(t.Context(), "")
			refusedFor(t, "Keys", err, refusal.CheckConfig)
			_, stateErr := r.State()
			refusedFor(t, "State", stateErr, refusal.CheckConfig)
			_, rotateErr := r.Rotate(namedSigner(t, "b"))
			refusedFor(t, "Rotate", rotateErr, refusal.CheckConfig)
			refusedFor(t, "Revoke", r.Revoke("a"), refusal.CheckConfig)
			if published := r.Published(); keys != nil || published != nil {
				t.Errorf("%v, %v", keys, published)
			}
			if publish, retain := r.Overlap(); publish != 0 || retain != 0 {
				t.Errorf("%v, %v", publish, retain)
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

// restart stores a signer's state and resumes it with all signers that there are, in an
// order that says nothing.
func restart(t *testing.T, r *RotatingSigner, now *clock, signers ...KeySigner) *RotatingSigner {
	t.Helper()
	state, err := r.State()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ResumeRotatingSigner(state, RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now}, signers...)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.State(); err != nil || string(got) != string(state) {
		t.Errorf("state %s after %s, %v", got, state, err)
	}
	return again
}

// A signer that is restarted every five minutes does all that one does which never stops:
// the same keys sign, and each leaves when it is due.
func TestRotatingSignerRestarts(t *testing.T) {
	a, b, c := namedSigner(t, "a"), namedSigner(t, "b"), namedSigner(t, "c")
	now := newClock()
	config := RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now,
		Retired: []PublishedKey{{Key: named(t, "old"), Until: now.Now().Add(90 * time.Minute)}}}
	steady, err := NewRotatingSigner(a, config)
	if err != nil {
		t.Fatal(err)
	}
	restarted, err := NewRotatingSigner(a, config)
	if err != nil {
		t.Fatal(err)
	}
	for minute := 0; minute <= 30*60; minute += 5 {
		var next KeySigner
		switch minute {
		case 30:
			next = b
		case 120:
			next = c
		}
		if next != nil {
			for _, r := range []*RotatingSigner{steady, restarted} {
				if _, err := r.Rotate(next); err != nil {
					t.Fatal(err)
				}
			}
		}
		restarted = restart(t, restarted, now, c, b, a)
		want, got := steady.Published(), restarted.Published()
		if len(want) != len(got) {
			t.Fatalf("minute %d: %d keys, want %d", minute, len(got), len(want))
		}
		for i := range want {
			if !sameKey(got[i].Key, want[i].Key) || !got[i].SignsFrom.Equal(want[i].SignsFrom) || !got[i].Until.Equal(want[i].Until) {
				t.Errorf("minute %d, key %d: got %+v, want %+v", minute, i, got[i], want[i])
			}
		}
		signature, err := restarted.Sign(t.Context(), []byte("{}"))
		if err != nil || signature.Key.KeyID() != want[0].Key.KeyID() {
			t.Errorf("minute %d: signed by %+v, %v", minute, signature, err)
		}
		now.Advance(5 * time.Minute)
	}
	wantState(t, "at the end", restarted, "c", "c")
}

// What became due while nothing ran is done at the restart.
func TestResumeRotatingSignerLater(t *testing.T) {
	a, b := namedSigner(t, "a"), namedSigner(t, "b")
	config := RotationConfig{Publish: testPublish, Retain: testRetain}
	for name, test := range map[string]struct {
		later     time.Duration
		signers   []KeySigner
		signs     string // empty: refused
		published []string
	}{
		"at once":                        {0, []KeySigner{a, b}, "a", []string{"a", "b", "old"}},
		"before the next signs":          {testPublish - 1, []KeySigner{b, a}, "a", []string{"a", "b", "old"}},
		"when the next signs":            {testPublish, []KeySigner{a, b}, "b", []string{"b", "a", "old"}},
		"without the former":             {testPublish, []KeySigner{b}, "b", []string{"b", "a", "old"}},
		"without the next, not yet":      {testPublish - 1, []KeySigner{a}, "a", []string{"a", "old"}},
		"without the next, which signs":  {testPublish, []KeySigner{a}, "", nil},
		"without the one that signs":     {testPublish - 1, []KeySigner{b}, "", nil},
		"without any":                    {0, nil, "", nil},
		"another key of the same ID":     {0, []KeySigner{namedSigner(t, "a"), b}, "", nil},
		"the old one has left":           {testRetain, []KeySigner{a, b}, "b", []string{"b", "a"}},
		"the former has left":            {testPublish + testRetain, []KeySigner{a, b}, "b", []string{"b"}},
		"with signers that have no turn": {0, []KeySigner{namedSigner(t, "x"), a, namedSigner(t, "old"), b}, "a", []string{"a", "b", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := newClock()
			config := config
			config.Now = now.Now
			config.Retired = []PublishedKey{{Key: named(t, "old"), Until: now.Now().Add(testRetain)}}
			r, err := NewRotatingSigner(a, config)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Rotate(b); err != nil {
				t.Fatal(err)
			}
			state, err := r.State()
			if err != nil {
				t.Fatal(err)
			}
			now.Advance(test.later)
			config.Retired = nil
			resumed, err := ResumeRotatingSigner(state, config, test.signers...)
			if test.signs == "" {
				refusedFor(t, name, err, refusal.CheckConfig)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantState(t, name, resumed, test.signs, test.published...)
		})
	}
}

// publishedText is an entry of a state.
func publishedText(t *testing.T, key *Key, times string) string {
	t.Helper()
	text, err := key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return `{"key":` + string(text) + times + `}`
}

func TestResumeRotatingSignerRefuses(t *testing.T) {
	a := namedSigner(t, "a")
	const from, until = `,"signsFrom":"2026-03-01T01:00:00Z"`, `,"until":"2026-03-02T00:00:00Z"`
	now := newClock()
	good := RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now}
	list := func(entries ...string) string { return `{"keys":[` + strings.Join(entries, ",") + `]}` }
	signs, next, old := publishedText(t, a.Key(), ""), publishedText(t, named(t, "b"), from), publishedText(t, named(t, "c"), until)
	for _, state := range []string{list(signs), list(signs, next), list(signs, old), list(signs, next, old)} {
		if _, err := ResumeRotatingSigner([]byte(state), good, a); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
	many := []string{signs}
	for n := range maxRetired + 1 {
		many = append(many, publishedText(t, named(t, fmt.Sprint(n)), until))
	}
	if r, err := ResumeRotatingSigner([]byte(list(many[:1+maxRetired]...)), good, a); err != nil || len(r.Published()) != 1+maxRetired {
		t.Errorf("as many keys as may be: %v", err)
	}
	for name, state := range map[string]string{
		"nothing":                    ``,
		"no object":                  `[]`,
		"no keys":                    list(),
		"no member":                  `{}`,
		"something after":            list(signs) + "{}",
		"a line end after":           list(signs) + "\n",
		"another member":             `{"keys":[` + signs + `],"x":[]}`,
		"another name":               `{"Keys":[` + signs + `]}`,
		"a member of an entry":       list(strings.TrimSuffix(signs, "}") + `,"x":1}`),
		"an entry without a key":     list(signs, `{"until":"2026-03-02T00:00:00Z"}`),
		"a key of another kind":      list(strings.Replace(signs, `"EC"`, `"XX"`, 1)),
		"a private key":              list(strings.Replace(signs, `"x":`, `"d":"AA","x":`, 1)),
		"members in another order":   list(strings.Replace(signs, `"use":"sig","kty":"EC"`, `"kty":"EC","use":"sig"`, 1)),
		"none that signs":            list(next, old),
		"none that signs but an old": list(old),
		"two that sign":              list(signs, publishedText(t, named(t, "b"), "")),
		"two that are next":          list(signs, next, publishedText(t, named(t, "c"), from)),
		"the next after an old":      list(signs, old, next),
		"both times":                 list(signs, publishedText(t, named(t, "b"), from+until)),
		"the same ID as next":        list(signs, publishedText(t, named(t, "a"), from)),
		"the same ID among old":      list(signs, old, publishedText(t, named(t, "c"), until)),
		"a time that is none":        list(signs, publishedText(t, named(t, "b"), `,"until":"tomorrow"`)),
		"a time of another type":     list(signs, publishedText(t, named(t, "b"), `,"until":1`)),
		"a time in another zone":     list(signs, publishedText(t, named(t, "b"), `,"until":"2026-03-02T01:00:00+01:00"`)),
		"a time with more digits":    list(signs, publishedText(t, named(t, "b"), `,"until":"2026-03-02T00:00:00.0Z"`)),
		"the time zero":              list(publishedText(t, a.Key(), `,"until":"0001-01-01T00:00:00Z"`)),
		"too many keys":              list(many...),
		"too long":                   list(signs) + strings.Repeat(" ", maxRotationStateSize),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ResumeRotatingSigner([]byte(state), good, a)
			refusedFor(t, name, err, checkRotationState)
		})
	}
	for name, test := range map[string]struct {
		config  RotationConfig
		signers []KeySigner
	}{
		"no times":         {RotationConfig{}, []KeySigner{a}},
		"Retired beside":   {RotationConfig{Publish: 1, Retain: 1, Retired: []PublishedKey{{Key: named(t, "x"), Until: now.Now()}}}, []KeySigner{a}},
		"a nil signer":     {good, []KeySigner{a, nil}},
		"a signer of nil":  {good, []KeySigner{(*CryptoSigner)(nil), a}},
		"a keyless signer": {good, []KeySigner{new(CryptoSigner), a}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ResumeRotatingSigner([]byte(list(signs)), test.config, test.signers...)
			refusedFor(t, name, err, refusal.CheckConfig)
		})
	}
}

// TestResumeRotatingSignerRevoked: a state from before a key was revoked does not bring it back, if
// the configuration remembers it.
func TestResumeRotatingSignerRevoked(t *testing.T) {
	old := named(t, "old")
	r, now := newRotating(t, old)
	a, b := r.state.Load().signer("a"), namedSigner(t, "b")
	if _, err := r.Rotate(b); err != nil {
		t.Fatal(err)
	}
	backup, err := r.State()
	if err != nil {
		t.Fatal(err)
	}
	resume := func(revoked ...string) (*RotatingSigner, error) {
		return ResumeRotatingSigner(backup, RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now, Revoked: revoked}, a, b)
	}
	for _, test := range []struct {
		revoked, published []string
		signs              string
	}{
		{nil, []string{"a", "b", "old"}, "a"},
		{[]string{"old"}, []string{"a", "b"}, "a"},
		{[]string{"of nobody", "b"}, []string{"a", "old"}, "a"},
		{[]string{"a"}, []string{"b", "old"}, "b"},
		{[]string{"old", "a"}, []string{"b"}, "b"},
	} {
		again, err := resume(test.revoked...)
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, fmt.Sprint("without ", test.revoked), again, test.signs, test.published...)
	}
	_, err = resume("a", "b")
	refusedFor(t, "nothing left", err, refusal.CheckConfig)
	again, err := resume("old")
	if err != nil {
		t.Fatal(err)
	}
	now.Advance(testPublish)
	_, err = again.Rotate(namedSigner(t, "old"))
	refusedFor(t, "a revoked key again", err, refusal.CheckConfig)
	config := RotationConfig{Publish: testPublish, Retain: testRetain, Revoked: []string{"a"}}
	_, err = NewRotatingSigner(a, config)
	refusedFor(t, "a revoked first key", err, refusal.CheckConfig)
	config.Retired = []PublishedKey{{Key: a.Key(), Until: now.Now()}}
	_, err = NewRotatingSigner(b, config)
	refusedFor(t, "a revoked old key", err, refusal.CheckConfig)
}

// signer returns the signer of the key with that ID.
func (s rotation) signer(keyID string) KeySigner { return s[s.index(keyID)].signer }

// TestResumeRotatingSignerClockAhead: a clock that was ahead at a restart, and is set right, has
// dropped no key whose tokens are still good.
func TestResumeRotatingSignerClockAhead(t *testing.T) {
	r, now := newRotating(t)
	a, b := r.state.Load().signer("a"), namedSigner(t, "b")
	if _, err := r.Rotate(b); err != nil {
		t.Fatal(err)
	}
	state, err := r.State()
	if err != nil {
		t.Fatal(err)
	}
	for name, signers := range map[string][]KeySigner{"both signers": {a, b}, "the later alone": {b}} {
		now.Advance(365 * 24 * time.Hour)
		again, err := ResumeRotatingSigner(state, RotationConfig{Publish: testPublish, Retain: testRetain, Now: now.Now}, signers...)
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, name+", ahead", again, "b", "b")
		now.Advance(-365 * 24 * time.Hour)
		if len(signers) == 2 {
			wantState(t, name+", set right", again, "a", "a", "b")
			continue
		}
		if _, err := again.Sign(t.Context(), []byte("{}")); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%s: %v, want %v", name, err, refusal.ErrRetry)
		}
		now.Advance(testPublish)
		wantState(t, name+", and on", again, "b", "b", "a")
		now.Advance(-testPublish)
	}
}

// A state of the largest size is read to its end.
func TestRotationStateSize(t *testing.T) {
	for size, want := range map[int]string{maxRotationStateSize: "syntax", maxRotationStateSize + 1: "bytes"} {
		_, err := ResumeRotatingSigner([]byte(strings.Repeat(" ", size)), RotationConfig{})
		refusedFor(t, want, err, checkRotationState)
		var e *Error
		if errors.As(err, &e) && (e.Err == nil) != (size > maxRotationStateSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// FuzzRotationState holds that a state which is accepted is written again to the byte.
func FuzzRotationState(f *testing.F) {
	fuzzing.Begin(f)
	r, err := NewRotatingSigner(namedSigner(f, "a"), RotationConfig{Publish: testPublish, Retain: testRetain})
	if err != nil {
		f.Fatal(err)
	}
	for _, id := range []string{"b", ""} {
		state, err := r.State()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(state)
		if id != "" {
			if _, err := r.Rotate(namedSigner(f, id)); err != nil {
				f.Fatal(err)
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := parseState(data)
		if err != nil {
			if keys != nil || !errors.Is(err, checkRotationState) {
				t.Errorf("%v, %v", keys, err)
			}
			return
		}
		if again, err := marshalState(keys); err != nil || string(again) != string(data) {
			t.Errorf("%s, %v after %s", again, err, data)
		}
	})
}
