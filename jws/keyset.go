package jws

import (
	"context"
	"fmt"
	"slices"
)

// KeySet finds the public keys that may have signed a token. Its methods are safe for
// concurrent use.
type KeySet interface {
	// Keys returns the keys whose ID is keyID, or all keys if keyID is empty, since a token
	// need not name its key. An unknown ID is not an error: it has no keys. An error means that
	// the question could not be answered; it should be one in which errors.Is finds
	// [refusal.ErrRetry]. Callers must not change the slice.
	Keys(ctx context.Context, keyID string) ([]*Key, error)
}

// StaticKeySet is a [KeySet] of keys that never change. It is safe for concurrent use. The
// zero value holds no keys, so every token is refused.
type StaticKeySet struct {
	all  []*Key
	byID map[string][]*Key
}

// NewStaticKeySet makes a set of the given keys, of which there must be at least one; it holds
// each once. Several different keys may have the same key ID only if each has a different
// algorithm, so that the header of a token names at most one key; otherwise the error is
// "key-set".
func NewStaticKeySet(keys ...*Key) (*StaticKeySet, error) {
	if len(keys) == 0 {
		return nil, &Error{Check: checkKeySet, Got: "no key", Want: "at least one"}
	}
	if i := slices.IndexFunc(keys, (*Key).missing); i >= 0 {
		return nil, &Error{Check: checkKeySet, Got: fmt.Sprintf("none at position %d", i), Want: "a key"}
	}
	keys, err := distinct(keys)
	if err != nil {
		return nil, err
	}
	set := &StaticKeySet{all: keys, byID: make(map[string][]*Key, len(keys))}
	for _, key := range keys {
		set.byID[key.keyID] = append(set.byID[key.keyID], key)
	}
	return set, nil
}

// Keys returns the keys with that ID, if there are any, or, if keyID is empty, all keys in the
// order in which they were given. The caller must not change the slice. The error is always
// nil.
func (s *StaticKeySet) Keys(_ context.Context, keyID string) ([]*Key, error) {
	switch {
	case s == nil:
		return nil, nil
	case keyID == "":
		return s.all, nil
	}
	return s.byID[keyID], nil
}
