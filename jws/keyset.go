package jws

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/refusal"
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

// NewStaticKeySet makes a set of the given keys, of which there must be at least one. Several
// keys may have the same key ID only if each has a different algorithm, so that the header of
// a token names at most one key; otherwise the error is "key-set".
func NewStaticKeySet(keys ...*Key) (*StaticKeySet, error) {
	if len(keys) == 0 {
		return nil, &Error{Check: checkKeySet, Got: "no key", Want: "at least one"}
	}
	for i, key := range keys {
		if key == nil || key.public == nil {
			return nil, &Error{Check: checkKeySet, Got: fmt.Sprintf("none at position %d", i), Want: "a key"}
		}
	}
	if err := checkDistinct(keys); err != nil {
		return nil, err
	}
	set := &StaticKeySet{all: slices.Clone(keys), byID: make(map[string][]*Key, len(keys))}
	for _, key := range keys {
		set.byID[key.keyID] = append(set.byID[key.keyID], key)
	}
	return set, nil
}

// Keys returns the keys with that ID, if there are any, or, if keyID is empty, all keys in the
// order in which they were given. The caller must not change the slice. The error is always
// nil.
func (s *StaticKeySet) Keys(_ context.Context, keyID string) ([]*Key, error) {
	return s.with(keyID), nil
}

func (s *StaticKeySet) with(keyID string) []*Key {
	switch {
	case s == nil:
		return nil
	case keyID == "":
		return s.all
	}
	return s.byID[keyID]
}

// UnionKeySet is a [KeySet] with the keys of several others: those of control planes that each
// sign with a key in a TPM of their own, or of an issuer that moves from one key set to
// another. Anyone who uses it trusts all of them alike. It is safe for concurrent use. The
// zero value answers nothing.
//
// Not: the keys of two clusters with one issuer, such as kubeadm's default. What the two issue
// differs in nothing but the key: the service account shop/cart of either is one user, unless
// whoever decides also compares [Key.Set].
type UnionKeySet struct {
	sets []NamedKeySet
}

// NamedKeySet is one set of a union.
type NamedKeySet struct {
	// Name is what [Key.Set] returns for the set's keys. It is required, and no other set of
	// the union may have it.
	Name string
	// Keys is the set itself. Asked with a context that has ended, it must not wait: it answers
	// from what it holds, or with an error.
	Keys KeySet
}

// NewUnionKeySet makes the union of one or more sets, none of them nil, each with a name of its
// own; otherwise the error is "key-set".
func NewUnionKeySet(sets ...NamedKeySet) (*UnionKeySet, error) {
	if len(sets) == 0 {
		return nil, &Error{Check: checkKeySet, Got: "no set of keys", Want: "at least one"}
	}
	for i, set := range sets {
		switch {
		case typednil.Is(set.Keys):
			return nil, &Error{Check: checkKeySet, Got: fmt.Sprintf("none at position %d", i), Want: "a set of keys"}
		case set.Name == "" || slices.ContainsFunc(sets[:i], func(other NamedKeySet) bool { return other.Name == set.Name }):
			return nil, &Error{Check: checkKeySet, Got: fmt.Sprintf("the name %q at position %d", set.Name, i), Want: "a name of its own"}
		}
	}
	return &UnionKeySet{sets: slices.Clone(sets)}, nil
}

// Keys returns the keys with that ID from the first set that holds any, so that a set which
// cannot answer delays no key that another one holds. If none holds one, the sets that have to
// fetch do so side by side, and the first that then has any is taken. If keyID is empty, it
// returns the keys of all sets, in order, each once. The caller must not change the slice.
//
// A set is first asked with a context that has ended, in which it must not wait. An error in
// which errors.Is finds [refusal.ErrRetry] means that a set that might have such a
// key could not answer: part of the union is never given as the whole. Two different keys with
// the same key ID and algorithm are refused with "key-set" when all are asked for.
func (u *UnionKeySet) Keys(ctx context.Context, keyID string) ([]*Key, error) {
	if u == nil || len(u.sets) == 0 {
		return nil, &Error{Check: checkKeySet, Got: "no set of keys", Want: "one that NewUnionKeySet made"}
	}
	ended, end := context.WithCancel(ctx)
	end()
	answers, failed := make([][]*Key, len(u.sets)), error(nil)
	var fetch []int // the sets that have no answer without waiting
	for i, set := range u.sets {
		keys, err := set.keys(ended, keyID)
		switch {
		case err != nil:
			fetch = append(fetch, i)
		case keyID != "" && len(keys) > 0:
			return keys, nil
		}
		answers[i] = keys
	}
	for a := range u.fetch(ctx, keyID, fetch) {
		switch {
		case a.err != nil:
			failed = errors.Join(failed, a.err)
		case keyID != "" && len(a.keys) > 0:
			return a.keys, nil
		}
		answers[a.set] = a.keys
	}
	if failed != nil {
		return nil, &Error{Check: refusal.ErrRetry, Got: "no answer of every set", Err: failed}
	}
	return together(answers)
}

// An answer is what one set of a union answered.
type answer struct {
	set  int
	keys []*Key
	err  error
}

// fetch asks some of the sets side by side, and yields their answers as they come. Those that
// are not waited for any more are told by their context.
func (u *UnionKeySet) fetch(ctx context.Context, keyID string, sets []int) iter.Seq[answer] {
	return func(yield func(answer) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answers := make(chan answer, len(sets)) // with room for all: nobody waits to be heard
		for _, i := range sets {
			go func() {
				keys, err := u.sets[i].keys(ctx, keyID)
				answers <- answer{i, keys, err}
			}()
		}
		for range sets {
			if !yield(<-answers) {
				return
			}
		}
	}
}

// together returns the keys of all answers, each once.
func together(answers [][]*Key) ([]*Key, error) {
	var all []*Key
	for _, key := range slices.Concat(answers...) {
		if !slices.ContainsFunc(all, func(other *Key) bool { return sameKey(key, other) }) {
			all = append(all, key)
		}
	}
	if slices.Contains(all, nil) {
		return nil, &Error{Check: checkKeySet, Got: "a key that is nil", Want: "keys"}
	}
	if err := checkDistinct(all); err != nil {
		return nil, err
	}
	return all, nil
}

// keys returns the set's keys with its name on them.
func (s NamedKeySet) keys(ctx context.Context, keyID string) ([]*Key, error) {
	keys, err := s.Keys.Keys(ctx, keyID)
	if err != nil {
		return nil, err
	}
	named := make([]*Key, len(keys)) // nil stays nil
	for i, key := range keys {
		if key != nil {
			own := *key
			own.set = s.Name
			named[i] = &own
		}
	}
	return named, nil
}

// Issuers returns the issuers that the sets of the union are fetched for, as
// [RemoteKeySet.Issuers] does for one.
func (u *UnionKeySet) Issuers() []string {
	if u == nil {
		return nil
	}
	var all []string
	for _, set := range u.sets {
		if of, ok := set.Keys.(interface{ Issuers() []string }); ok {
			all = append(all, of.Issuers()...)
		}
	}
	return all
}

// Overlap returns the shortest of the durations that [RotatingSigner.Overlap] and similar
// methods return for the sets of the union. Sets without that method are assumed never to
// change; if there are only such sets, both are the longest that a duration can be.
func (u *UnionKeySet) Overlap() (publish, retain time.Duration) {
	if u == nil || len(u.sets) == 0 {
		return 0, 0
	}
	publish, retain = math.MaxInt64, math.MaxInt64
	for _, set := range u.sets {
		if rotating, ok := set.Keys.(interface {
			Overlap() (publish, retain time.Duration)
		}); ok {
			p, r := rotating.Overlap()
			publish, retain = min(publish, p), min(retain, r)
		}
	}
	return publish, retain
}
