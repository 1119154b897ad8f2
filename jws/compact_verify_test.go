package jws

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

// A set that answers what it is told to, and remembers what it was asked for.
type toldSet struct {
	keys  []*Key
	err   error
	asked []string
}

func (s *toldSet) Keys(_ context.Context, keyID string) ([]*Key, error) {
	s.asked = append(s.asked, keyID)
	return s.keys, s.err
}

func TestVerify(t *testing.T) {
	ctx := context.Background()
	for algorithm, f := range forgers() {
		// All keys have this ID: the token's algorithm selects among them.
		set := &toldSet{keys: []*Key{nil, forgers()[ES256].key, forgers()[RS256].key, f.key}}
		token := f.good(t)
		got, err := VerifySignature(ctx, token, set)
		if err != nil {
			t.Errorf("%s: %v", algorithm, err)
			continue
		}
		if got.Key != f.key && got.Key.algorithm != f.algorithm || string(got.Payload) != forgedPayload || got.Token.KeyID() != "k" {
			t.Errorf("%s: got %+v", algorithm, got)
		}
		if len(set.asked) != 1 || set.asked[0] != "k" {
			t.Errorf("%s: asked for %q", algorithm, set.asked)
		}
	}
}

// Without a key ID all keys are tried.
func TestVerifyWithoutKeyID(t *testing.T) {
	f, stranger := forgers()[ES256], strangers()[ES256]
	token := f.token(t, `{"alg":"ES256"}`, forgedPayload)
	for _, keys := range [][]*Key{{f.key}, {stranger.key, f.key}, {stranger.key, forgers()[RS256].key, f.key}} {
		if got, err := VerifySignature(context.Background(), token, &toldSet{keys: keys}); err != nil || got.Key != f.key {
			t.Errorf("%d keys: %v", len(keys), err)
		}
	}
	_, err := VerifySignature(context.Background(), token, &toldSet{keys: []*Key{stranger.key}})
	refusedFor(t, "a stranger's key", err, checkSignature)
	_, err = VerifySignature(context.Background(), token, &toldSet{})
	refusedFor(t, "no key", err, CheckKeyID)
}

func TestVerifyRefused(t *testing.T) {
	ctx := context.Background()
	f := forgers()[ES256]
	good := f.good(t)
	named, err := NewKey(f.signer.Public(), KeyOptions{KeyID: "other"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token string
		keys  KeySet
		want  Check
	}{
		"no set":             {good, nil, checkKeySet},
		"no token":           {"", &toldSet{keys: []*Key{f.key}}, checkTokenSize},
		"no key of this ID":  {good, &toldSet{}, CheckKeyID},
		"a set that lies":    {good, &toldSet{keys: []*Key{named}}, CheckKeyID},
		"another algorithm":  {good, &toldSet{keys: []*Key{forgers()[RS256].key}}, CheckAlgorithm},
		"a nil key":          {good, &toldSet{keys: []*Key{nil}}, CheckAlgorithm},
		"a stranger's key":   {good, &toldSet{keys: []*Key{strangers()[ES256].key}}, checkSignature},
		"then another's":     {good, &toldSet{keys: []*Key{strangers()[ES256].key, forgers()[RS256].key}}, checkSignature},
		"a set that failed":  {good, &toldSet{keys: []*Key{f.key}, err: io.EOF}, refusal.ErrRetry},
		"a set that waits":   {good, &toldSet{err: &Error{Check: refusal.ErrRetry, Err: io.EOF}}, refusal.ErrRetry},
		"a refusal of a set": {good, &toldSet{err: &Error{Check: checkKeySet, Got: "a lie"}}, refusal.ErrRetry},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := VerifySignature(ctx, test.token, test.keys)
			refusedFor(t, name, err, test.want)
			if got != nil {
				t.Errorf("%s: a result beside the error", name)
			}
		})
	}
	waits := &Error{Check: refusal.ErrRetry, Err: io.EOF}
	if _, err := VerifySignature(ctx, good, &toldSet{err: waits}); err != error(waits) { //nolint:errorlint // the very error
		t.Errorf("got %v, want the set's own error", err)
	}
	_, err = VerifySignature(ctx, good, &toldSet{err: io.EOF})
	if !errors.Is(err, io.EOF) {
		t.Errorf("the cause is lost: %v", err)
	}
	for _, token := range []*Token{nil, new(Token)} {
		_, err := token.VerifySignature(ctx, &toldSet{keys: []*Key{f.key}})
		refusedFor(t, "zero token", err, checkForm)
	}
}

func TestSignatureToken(t *testing.T) {
	f := forgers()[EdDSA]
	token := f.good(t)
	parsed, err := Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	s := &Signature{Header: b64(`{"alg":"EdDSA","kid":"k"}`), Value: b64(string(parsed.read().signature)), Key: f.key}
	if got := s.Token([]byte(forgedPayload)); got != token {
		t.Errorf("got %s, want %s", got, token)
	}
	refusedFor(t, "another payload", f.verifies(s.Token([]byte("{}"))), checkSignature)
}
