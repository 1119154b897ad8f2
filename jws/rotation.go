package jws

import (
	"context"
	"crypto"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// maxRetired is how many keys that no longer sign may be published at a time.
const maxRetired = 64

// KeySigner is a [Signer] with one key. [CryptoSigner] is one.
type KeySigner interface {
	Signer
	// Key returns the public key with which all its tokens verify. It never changes.
	Key() *Key
}

// RotationConfig says how long keys overlap. Both durations are required.
type RotationConfig struct {
	// Publish is how long a new key is in the key set before it signs: at least as long as
	// verifiers keep the set without asking again, which for kube-apiserver's is the max-age of
	// an hour that it is served with. The set must be served with a max-age of no more than
	// this.
	Publish time.Duration
	// Retain is how long a key stays in the key set after it last signed: the longest lifetime
	// of a token, plus the leeway that verifiers add to it.
	Retain time.Duration
	// Retired are keys that no longer sign but whose tokens may still be in use, at most 64,
	// each with the Until at which it leaves the key set: a key whose time started again with
	// every restart would never leave. [RotatingSigner.Published] returns the keys of a
	// signer before it is stopped.
	Retired []PublishedKey
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// RotatingSigner is a [Signer] whose key is replaced while it is in use, and the [KeySet]
// of the keys with which its tokens verify. It is safe for concurrent use.
//
// A key's life: [RotatingSigner.Rotate] puts it into the key set; Publish later, it begins to
// sign and its predecessor stops; Retain after its own successor has taken over, it leaves the
// key set. These times are compared with the clock at each call: nothing runs in the
// background, and every call sees one state, from before a change or from after it. A token
// that was signed with the key of a state verifies with the key set of that state and of all
// later ones until it has expired.
//
// For a restart the caller stores what [RotatingSigner.Published] returns after each Rotate and
// Revoke. The new signer begins with the key that signs by then, and the keys that no longer sign
// are its Retired. A key that was on its way is published anew with Rotate.
//
// Several servers that serve one key set with one key may rotate one by one or all at once, if
// Publish covers the time until all serve the new key.
//
// [NewRotatingSigner] makes one; every call on the zero value fails with [refusal.CheckConfig].
type RotatingSigner struct {
	publish, retain time.Duration
	now             func() time.Time

	change sync.Mutex // held while state is replaced
	state  atomic.Pointer[rotation]
}

// A rotation is one state, in the order of [RotatingSigner.Published]. It never changes.
type rotation []rotating

// A rotating is a published key.
type rotating struct {
	PublishedKey
	signer KeySigner // nil for a key that no longer signs
}

// NewRotatingSigner makes a signer that signs with the given key at once. The error is
// [refusal.CheckConfig].
func NewRotatingSigner(first KeySigner, config RotationConfig) (*RotatingSigner, error) {
	if err := checkKeySigner(first); err != nil {
		return nil, err
	}
	if config.Publish <= 0 || config.Retain <= 0 {
		return nil, refusal.Config("Publish", config.Publish.String()+", Retain "+config.Retain.String(), "both more than 0")
	}
	state := rotation{{PublishedKey{Key: first.Key()}, first}}
	for _, old := range config.Retired {
		if old.Key.missing() || old.Until.IsZero() || !old.SignsFrom.IsZero() {
			return nil, refusal.Config("Retired", "with a key that is nil or zero, or has no end", "keys, and when each leaves the key set")
		}
		if err := state.checkNew(old.Key); err != nil {
			return nil, err
		}
		state = append(state, rotating{PublishedKey: old})
	}
	r := &RotatingSigner{publish: config.Publish, retain: config.Retain, now: wallclock.Or(config.Now)}
	r.state.Store(&state)
	return r, nil
}

// at returns the state as it is now. It refuses a signer that this package did not make.
func (r *RotatingSigner) at() (rotation, error) {
	if r == nil || r.state.Load() == nil {
		return nil, refusal.Config("signer", "", "one that NewRotatingSigner made")
	}
	return r.state.Load().at(r.now(), r.retain), nil
}

// checkKeySigner refuses a signer without a key.
func checkKeySigner(s KeySigner) error {
	if s == nil || s.Key().missing() {
		return refusal.Config("signer", "", "one with a key")
	}
	return nil
}

// checkNew refuses a key whose ID is in use, or for which there is no room.
func (s rotation) checkNew(key *Key) error {
	switch {
	case s.index(key.keyID) >= 0:
		return refusal.Config("key ID", refusal.Text(key.keyID)+" once more", "one that is not published")
	case len(s) > maxRetired:
		return refusal.Config("keys", "and one more", fmt.Sprintf("at most %d that sign no more", maxRetired))
	}
	return nil
}

// index returns where the key with that ID is, or -1.
func (s rotation) index(keyID string) int {
	return slices.IndexFunc(s, func(k rotating) bool { return k.Key.keyID == keyID })
}

// next returns the key that is to sign next, or nil.
func (s rotation) next() *rotating {
	if len(s) < 2 || s[1].SignsFrom.IsZero() {
		return nil
	}
	return &s[1]
}

// at returns the state at the given time.
func (s rotation) at(now time.Time, retain time.Duration) rotation {
	s = slices.Clone(s)
	if next := s.next(); next != nil && !now.Before(next.SignsFrom) {
		s[0].signer, s[0].Until = nil, next.SignsFrom.Add(retain)
		next.SignsFrom = time.Time{}
		s[0], s[1] = s[1], s[0]
	}
	return slices.DeleteFunc(s, func(k rotating) bool { return !k.Until.IsZero() && !now.Before(k.Until) })
}

// Sign signs with the key whose turn it is. Its errors are from the key's signer,
// "signer-output" if that signed with a key other than its own, and [refusal.CheckConfig]
// for the zero value.
func (r *RotatingSigner) Sign(ctx context.Context, payload []byte) (*Signature, error) {
	state, err := r.at()
	if err != nil {
		return nil, err
	}
	signature, err := state[0].signer.Sign(ctx, payload)
	if err != nil {
		return nil, err
	}
	if signature == nil || !sameKey(signature.Key, state[0].Key) {
		return nil, &Error{Check: checkSignerOutput, Got: "a signature with another key", Want: state[0].Key.keyID}
	}
	return signature, nil
}

// sameKey reports whether two keys verify the same tokens.
func sameKey(a, b *Key) bool {
	if a == nil || b == nil || a.keyID != b.keyID || a.algorithm != b.algorithm {
		return false
	}
	public, ok := a.public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(b.public)
}

// Keys returns the key with that ID if it is published, or all published keys if keyID is
// empty, in the order of Published.
func (r *RotatingSigner) Keys(_ context.Context, keyID string) ([]*Key, error) {
	state, err := r.at()
	if err != nil {
		return nil, err
	}
	var keys []*Key
	for _, k := range state {
		if keyID == "" || k.Key.keyID == keyID {
			keys = append(keys, k.Key)
		}
	}
	return keys, nil
}

// PublishedKey is one key in the key set of a [RotatingSigner].
type PublishedKey struct {
	// Key is the key.
	Key *Key
	// SignsFrom is when it is to begin to sign; zero for the key that signs, and for keys that
	// no longer sign.
	SignsFrom time.Time
	// Until is when it leaves the key set; zero for the key that signs and the next
	// one.
	Until time.Time
}

// Overlap returns the durations of the signer's configuration, or 0 for the zero value.
func (r *RotatingSigner) Overlap() (publish, retain time.Duration) {
	return r.publish, r.retain
}

// Published returns the published keys: first the one that signs, then the next if there is
// one, then the keys that no longer sign, the latest first. The zero value has none.
func (r *RotatingSigner) Published() (keys []PublishedKey) {
	state, _ := r.at()
	for _, k := range state {
		keys = append(keys, k.PublishedKey)
	}
	return keys
}

// Rotate publishes a key now and lets it sign from the returned time on: Publish from now. The
// key's ID must not be that of a published one, and no other key may be on its way; otherwise
// the error is [refusal.CheckConfig] and nothing has changed.
func (r *RotatingSigner) Rotate(next KeySigner) (signsFrom time.Time, err error) {
	if err := checkKeySigner(next); err != nil {
		return time.Time{}, err
	}
	err = r.replace(func(state rotation) (rotation, error) {
		if other := state.next(); other != nil {
			return nil, refusal.Config("key", refusal.Text(other.Key.keyID)+" on its way",
				"no other before "+other.SignsFrom.UTC().Format(time.RFC3339))
		}
		if err := state.checkNew(next.Key()); err != nil {
			return nil, err
		}
		signsFrom = r.now().Add(r.publish)
		return slices.Insert(state, 1, rotating{PublishedKey{Key: next.Key(), SignsFrom: signsFrom}, next}), nil
	})
	return signsFrom, err
}

// replace makes a change to the state as it is now, one at a time.
func (r *RotatingSigner) replace(change func(rotation) (rotation, error)) error {
	if _, err := r.at(); err != nil {
		return err
	}
	r.change.Lock()
	defer r.change.Unlock()
	state, _ := r.at()
	state, err := change(state)
	if err == nil {
		r.state.Store(&state)
	}
	return err
}

// Revoke removes a key from the key set at once, for when it can no longer be trusted: tokens
// that it signed are refused by this key set from now on, and by each verifier that keeps a copy
// once it fetches again. A key that is on its way never signs. If the key that signs is revoked,
// the next one signs in its place at once, with no time for others to learn of it. If there is no
// next one, or the ID is not published, the error is [refusal.CheckConfig] and nothing has
// changed.
func (r *RotatingSigner) Revoke(keyID string) error {
	return r.replace(func(state rotation) (rotation, error) {
		i := state.index(keyID)
		switch {
		case i < 0:
			return nil, refusal.Config("key ID", keyID, "one that is published")
		case i == 0 && state.next() == nil:
			return nil, refusal.Config("key", "that is the only one that signs", "a next one")
		}
		state = slices.Delete(state, i, i+1)
		state[0].SignsFrom = time.Time{} // in place of the one that signed
		return state, nil
	})
}
