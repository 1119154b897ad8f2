package jws

import (
	"context"
	"crypto"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxRetired is how many keys that sign no more may be published at a time.
const maxRetired = 64

// KeySigner is a [Signer] with one key. [CryptoSigner] is one.
type KeySigner interface {
	Signer
	// Key returns the public key with which all its tokens verify. It never changes.
	Key() *Key
}

// RotationConfig says how long keys overlap. Both durations are required.
type RotationConfig struct {
	// Publish is how long a new key is in the key set before it signs: at least as
	// long as verifiers keep the set without asking again, which for kube-apiserver's
	// is the max-age of an hour that it is served with. Whoever serves the set serves
	// it with a max-age of no more.
	Publish time.Duration
	// Retain is how long a key stays in the key set after it signed last: the lifetime
	// of the longest token, and the leeway that verifiers add to it.
	Retain time.Duration
	// Retired are keys that sign no more and whose tokens may still be about, at most
	// 64, each with the Until at which it leaves the key set: a key whose time began anew
	// with every restart would never leave. [RotatingSigner.State] has those of a signer that was stopped;
	// [ResumeRotatingSigner] takes none beside them.
	Retired []PublishedKey
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// RotatingSigner is a [Signer] whose key is replaced while it is in use, and the [KeySet]
// of the keys with which its tokens verify. It is safe for concurrent use.
//
// A key's life: [RotatingSigner.Rotate] puts it into the key set; Publish later it signs
// and its predecessor does not; Retain after its own successor took over it leaves the
// key set. These are times that are compared with the clock at each call: nothing runs in
// the background, and every call sees one state, from before a change or from after it.
// A token that was signed with the key of a state verifies with the key set of that state
// and of all that follow until it has expired.
//
// A restart loses nothing if the caller stores [RotatingSigner.State] after each Rotate
// and Revoke, and goes on with [ResumeRotatingSigner].
//
// Several servers that serve one key set with one key rotate one by one or at once as they
// like, if Publish covers the time that it takes until all serve the new key. Where each
// has a key of its own, as in a TPM, each publishes the keys of all with a [UnionKeySet].
//
// [NewRotatingSigner] makes one; every call on the zero value fails with [refusal.CheckConfig].
type RotatingSigner struct {
	publish, retain time.Duration
	now             func() time.Time

	change sync.Mutex // held while state is replaced
	state  atomic.Pointer[rotation]
}

// rotation is one state. It never changes.
type rotation struct {
	current KeySigner
	next    KeySigner      // nil if none is on its way
	from    time.Time      // when next takes over
	retired []PublishedKey // the latest first
}

// NewRotatingSigner makes a signer that signs with the given key at once. The error is
// [refusal.CheckConfig].
func NewRotatingSigner(first KeySigner, config RotationConfig) (*RotatingSigner, error) {
	if err := checkKeySigner(first); err != nil {
		return nil, err
	}
	return startRotating(&rotation{current: first}, config.Retired, config)
}

// startRotating makes a signer of a state without retired keys, and these.
func startRotating(state *rotation, old []PublishedKey, config RotationConfig) (*RotatingSigner, error) {
	if config.Publish <= 0 || config.Retain <= 0 {
		return nil, &Error{Check: refusal.CheckConfig,
			Got: "Publish " + config.Publish.String() + ", Retain " + config.Retain.String(), Want: "both more than 0"}
	}
	r := &RotatingSigner{publish: config.Publish, retain: config.Retain, now: config.Now}
	if r.now == nil {
		r.now = time.Now
	}
	for _, o := range old {
		switch {
		case o.Key == nil || o.Key.public == nil:
			return nil, &Error{Check: refusal.CheckConfig, Got: "no key among those that sign no more", Want: "keys"}
		case o.Until.IsZero() || !o.SignsFrom.IsZero():
			return nil, &Error{Check: refusal.CheckConfig, Got: "no end of the key " + o.Key.keyID, Want: "when it leaves the key set"}
		}
		if err := state.checkNew(o.Key); err != nil {
			return nil, err
		}
		state.retired = append(state.retired, o)
	}
	r.state.Store(state)
	return r, nil
}

// at returns the state as it is now.
func (r *RotatingSigner) at() (rotation, error) {
	if err := r.made(); err != nil {
		return rotation{}, err
	}
	return r.state.Load().at(r.now(), r.retain), nil
}

// made refuses a signer that this package did not make.
func (r *RotatingSigner) made() error {
	if r == nil || r.state.Load() == nil {
		return &Error{Check: refusal.CheckConfig, Got: "no signer", Want: "one that NewRotatingSigner made"}
	}
	return nil
}

// checkKeySigner refuses a signer without a key.
func checkKeySigner(s KeySigner) error {
	if s == nil {
		return &Error{Check: refusal.CheckConfig, Got: "no signer"}
	}
	if key := s.Key(); key == nil || key.public == nil {
		return &Error{Check: refusal.CheckConfig, Got: "a signer without a key"}
	}
	return nil
}

// checkNew refuses a key whose ID is in use, and one more than fit.
func (s *rotation) checkNew(key *Key) error {
	inUse := key.keyID == s.current.Key().keyID || s.next != nil && key.keyID == s.next.Key().keyID
	for _, old := range s.retired {
		inUse = inUse || key.keyID == old.Key.keyID
	}
	switch {
	case inUse:
		return &Error{Check: refusal.CheckConfig, Got: "the key ID " + refusal.Text(key.keyID) + " once more", Want: "one that is not published"}
	case len(s.retired) >= maxRetired:
		return &Error{Check: refusal.CheckConfig, Got: "one more key", Want: fmt.Sprintf("at most %d that sign no more", maxRetired)}
	}
	return nil
}

// Sign signs with the key whose turn it is. Its errors are those of the key's signer,
// [CheckSignerOutput] if that signed with another key than its own, and [refusal.CheckConfig]
// for the zero value.
func (r *RotatingSigner) Sign(ctx context.Context, payload []byte) (*Signature, error) {
	if err := r.made(); err != nil {
		return nil, err
	}
	signer := r.state.Load().signer(r.now())
	signature, err := signer.Sign(ctx, payload)
	if err != nil {
		return nil, err
	}
	if signature == nil || !sameKey(signature.Key, signer.Key()) {
		return nil, &Error{Check: CheckSignerOutput, Got: "a signature with another key", Want: signer.Key().keyID}
	}
	return signature, nil
}

// signer returns the signer whose turn it is.
func (s *rotation) signer(now time.Time) KeySigner {
	if s.next != nil && !now.Before(s.from) {
		return s.next
	}
	return s.current
}

// at returns what has become of a state by now.
func (s *rotation) at(now time.Time, retain time.Duration) rotation {
	late := rotation{current: s.current, next: s.next, from: s.from}
	if s.next != nil && !now.Before(s.from) {
		late = rotation{current: s.next}
		if until := s.from.Add(retain); now.Before(until) {
			late.retired = append(late.retired, PublishedKey{Key: s.current.Key(), Until: until})
		}
	}
	for _, old := range s.retired {
		if now.Before(old.Until) {
			late.retired = append(late.retired, old)
		}
	}
	return late
}

// sameKey reports whether two keys verify the same tokens.
func sameKey(a, b *Key) bool {
	if a == nil || b == nil || a.keyID != b.keyID || a.algorithm != b.algorithm {
		return false
	}
	public, ok := a.public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(b.public)
}

// Keys returns the key with that ID if it is published, and all published keys where
// keyID is empty, in the order of Published.
func (r *RotatingSigner) Keys(_ context.Context, keyID string) ([]*Key, error) {
	if err := r.made(); err != nil {
		return nil, err
	}
	var keys []*Key
	for _, p := range r.Published() {
		if keyID == "" || p.Key.keyID == keyID {
			keys = append(keys, p.Key)
		}
	}
	return keys, nil
}

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
// its way; otherwise the error is [refusal.CheckConfig] and nothing has changed.
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
		return time.Time{}, &Error{Check: refusal.CheckConfig,
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
// there is no next one, and for an ID that is not published, the error is [refusal.CheckConfig]
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
			return &Error{Check: refusal.CheckConfig, Got: "the only key that signs", Want: "a next one"}
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
	return &Error{Check: refusal.CheckConfig, Got: "the key ID " + keyID, Want: "one that is published"}
}
