package jws

import (
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// PublishedKey is one key in the key set of a [RotatingSigner].
type PublishedKey struct {
	// Key is the key.
	Key *Key
	// SignsFrom is when it is to begin to sign; zero for the key that signs, and for
	// those that sign no more.
	SignsFrom time.Time
	// Until is when it leaves the key set; zero for the key that signs and the next
	// one.
	Until time.Time
}

// Overlap returns the durations of the signer's configuration: 0 of the zero value.
func (r *RotatingSigner) Overlap() (publish, retain time.Duration) {
	if r.made() != nil {
		return 0, 0
	}
	return r.publish, r.retain
}

// Published returns the published keys: the one that signs first, then the next if there
// is one, then those that sign no more, the latest first. The zero value has none.
func (r *RotatingSigner) Published() []PublishedKey {
	state, err := r.at()
	if err != nil {
		return nil
	}
	keys := make([]PublishedKey, 0, 2+len(state.retired))
	keys = append(keys, PublishedKey{Key: state.current.Key()})
	if state.next != nil {
		keys = append(keys, PublishedKey{Key: state.next.Key(), SignsFrom: state.from})
	}
	for _, old := range state.retired {
		keys = append(keys, PublishedKey{Key: old.Key, Until: old.Until})
	}
	return keys
}

// Rotate publishes a key now and lets it sign from the time that is returned: Publish
// from now. The key's ID must not be that of a published one, and no other key may be on
// its way; otherwise the error is [CheckRotation] and nothing has changed.
func (r *RotatingSigner) Rotate(next KeySigner) (signsFrom time.Time, err error) {
	if err := checkKeySigner(next); err != nil {
		return time.Time{}, err
	}
	if err := r.made(); err != nil {
		return time.Time{}, err
	}
	r.change.Lock()
	defer r.change.Unlock()
	now := r.now()
	state := r.state.Load().at(now, r.retain)
	if state.next != nil {
		return time.Time{}, &Error{Check: CheckRotation,
			Got: refusal.Text(state.next.Key().keyID) + " on its way", Want: "no other before " + state.from.UTC().Format(time.RFC3339)}
	}
	if err := state.checkNew(next.Key()); err != nil {
		return time.Time{}, err
	}
	state.next, state.from = next, now.Add(r.publish)
	r.state.Store(&state)
	return state.from, nil
}

// Revoke takes a key out of the key set at once, for when it can no longer be trusted:
// tokens that it signed are refused by this key set from now on, and by those who fetched
// it when they ask again. A key that is on its way never signs. In the place of the key
// that signs the next one signs at once, with no time for others to learn of it; where
// there is no next one, and for an ID that is not published, the error is [CheckRotation]
// and nothing has changed.
func (r *RotatingSigner) Revoke(keyID string) error {
	if err := r.made(); err != nil {
		return err
	}
	r.change.Lock()
	defer r.change.Unlock()
	state := r.state.Load().at(r.now(), r.retain)
	if state.current.Key().keyID == keyID {
		if state.next == nil {
			return &Error{Check: CheckRotation, Got: "the only key that signs", Want: "a next one"}
		}
		state.current, state.next, state.from = state.next, nil, time.Time{}
		r.state.Store(&state)
		return nil
	}
	if state.next != nil && state.next.Key().keyID == keyID {
		state.next, state.from = nil, time.Time{}
		r.state.Store(&state)
		return nil
	}
	for i, old := range state.retired {
		if old.Key.keyID == keyID {
			state.retired = append(state.retired[:i:i], state.retired[i+1:]...)
			r.state.Store(&state)
			return nil
		}
	}
	return &Error{Check: CheckRotation, Got: "the key ID " + keyID, Want: "one that is published"}
}
