package jws

import (
	"context"
	"slices"
	"testing"
)

func TestStaticKeySet(t *testing.T) {
	a, b := named(t, "a"), named(t, "b")
	rs, err := NewKey(forgers()[RS256].signer.Public(), KeyOptions{KeyID: "rsa", Algorithm: RS256})
	if err != nil {
		t.Fatal(err)
	}
	ps, err := NewKey(forgers()[RS256].signer.Public(), KeyOptions{KeyID: "rsa", Algorithm: PS256})
	if err != nil {
		t.Fatal(err)
	}
	given := []*Key{a, rs, b, ps, a, rs} // two of them twice
	set, err := NewStaticKeySet(given...)
	if err != nil {
		t.Fatal(err)
	}
	given[0] = nil // the set has its own
	for keyID, want := range map[string][]*Key{"": {a, rs, b, ps}, "a": {a}, "b": {b}, "rsa": {rs, ps}, "c": nil, "A": nil} {
		t.Run(keyID, func(t *testing.T) {
			if got, err := set.Keys(context.Background(), keyID); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q: %v, %v", keyID, got, err)
			}
		})
	}
}

// The header of a token names one key: the one of its algorithm among the keys of its ID.
func TestStaticKeySetOneIDTwoAlgorithms(t *testing.T) {
	keys := []*Key{forgers()[RS256].key, forgers()[PS256].key, forgers()[ES256].key}
	set, err := NewStaticKeySet(keys...)
	if err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []Algorithm{RS256, PS256, ES256} {
		verified, err := VerifySignature(context.Background(), forgers()[algorithm].good(t), set)
		if err != nil || verified.Key.Algorithm() != algorithm {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
	_, err = VerifySignature(context.Background(), forgers()[ES384].good(t), set)
	refusedFor(t, "another algorithm", err, CheckAlgorithm)
}

func TestNewStaticKeySetRefuses(t *testing.T) {
	for name, keys := range map[string][]*Key{
		"none":                  nil,
		"nil":                   {nil},
		"nil among others":      {named(t, "a"), nil},
		"a zero key":            {new(Key)},
		"one key ID twice":      {forgers()[ES256].key, strangers()[ES256].key},
		"one key ID twice of 3": {forgers()[ES256].key, named(t, "a"), strangers()[ES256].key},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewStaticKeySet(keys...)
			refusedFor(t, name, err, checkKeySet)
		})
	}
}

// Zero sets refuse every token.
func TestStaticKeySetZero(t *testing.T) {
	for name, set := range map[string]*StaticKeySet{"zero": new(StaticKeySet), "nil": nil} {
		_, err := VerifySignature(context.Background(), forgers()[ES256].good(t), set)
		refusedFor(t, name, err, CheckKeyID)
	}
}
