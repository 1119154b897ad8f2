package jws

import (
	"context"
	"crypto"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"sync"
	"sync/atomic"
	"time"
)

// CheckRotation: a rotation that cannot be: no times, a key that is published already, one
// while another is on its way, or the removal of the only key that signs.
const CheckRotation Check = "rotation"

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
	// Retired are keys that sign no more and whose tokens may still be about, such as
	// those of the time before a restart, at most 64. They stay in the key set for
	// Retain, counted from the making of the signer.
	Retired []*Key
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
// Nothing is stored. After a restart the caller makes a new RotatingSigner of the key that
// signed, with the older ones as Retired; a key that was published and did not sign yet is
// rotated to once more. The times then begin anew, which errs on the long side. Several
// servers that serve one key set rotate one by one or at once as they like, if Publish
// covers the time that it takes until all serve the new key.
type RotatingSigner struct {
	publish, retain time.Duration
	now             func() time.Time

	change sync.Mutex // held while state is replaced
	state  atomic.Pointer[rotation]
}

// rotation is one state. It never changes.
type rotation struct {
	current KeySigner
	next    KeySigner // nil if none is on its way
	from    time.Time // when next takes over
	retired []retired // by the time at which they leave
}

// retired is a key that signs no more, and when it leaves the key set.
type retired struct {
	key   *Key
	until time.Time
}

// NewRotatingSigner makes a signer that signs with the given key at once. The error is
// [CheckRotation].
func NewRotatingSigner(first KeySigner, config RotationConfig) (*RotatingSigner, error) {
	if err := checkKeySigner(first); err != nil {
		return nil, err
	}
	if config.Publish <= 0 || config.Retain <= 0 {
		return nil, &Error{Check: CheckRotation,
			Got: "Publish " + config.Publish.String() + ", Retain " + config.Retain.String(), Want: "both more than 0"}
	}
	r := &RotatingSigner{publish: config.Publish, retain: config.Retain, now: config.Now}
	if r.now == nil {
		r.now = time.Now
	}
	state := &rotation{current: first}
	until := r.now().Add(r.retain)
	for _, key := range config.Retired {
		if key == nil || key.public == nil {
			return nil, &Error{Check: CheckRotation, Got: "no key among Retired", Want: "keys"}
		}
		if err := state.checkNew(key); err != nil {
			return nil, err
		}
		state.retired = append(state.retired, retired{key, until})
	}
	r.state.Store(state)
	return r, nil
}

// checkKeySigner refuses a signer without a key.
func checkKeySigner(s KeySigner) error {
	if s == nil {
		return &Error{Check: CheckRotation, Got: "no signer"}
	}
	if key := s.Key(); key == nil || key.public == nil {
		return &Error{Check: CheckRotation, Got: "a signer without a key"}
	}
	return nil
}

// checkNew refuses a key whose ID is in use, and one more than fit.
func (s *rotation) checkNew(key *Key) error {
	inUse := key.keyID == s.current.Key().keyID || s.next != nil && key.keyID == s.next.Key().keyID
	for _, old := range s.retired {
		inUse = inUse || key.keyID == old.key.keyID
	}
	switch {
	case inUse:
		return &Error{Check: CheckRotation, Got: "the key ID " + refusal.Text(key.keyID) + " once more", Want: "one that is not published"}
	case len(s.retired) >= maxRetired:
		return &Error{Check: CheckRotation, Got: "one more key", Want: fmt.Sprintf("at most %d that sign no more", maxRetired)}
	}
	return nil
}

// Sign signs with the key whose turn it is. Its errors are those of the key's signer,
// and [CheckSignerOutput] if that signed with another key than its own.
func (r *RotatingSigner) Sign(ctx context.Context, payload []byte) (*Signature, error) {
	signer := r.state.Load().signer(r.now())
	signature, err := signer.Sign(ctx, payload)
	if err != nil {
		return nil, err
	}
	if signature == nil || !sameKey(signature.Key, signer.Key()) {
		return nil, &Error{Check: CheckSignerOutput, Got: "a signature with another key", Want: refusal.Text(signer.Key().keyID)}
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
			late.retired = append(late.retired, retired{s.current.Key(), until})
		}
	}
	for _, old := range s.retired {
		if now.Before(old.until) {
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
// keyID is empty, in the order of Published. The error is always nil.
func (r *RotatingSigner) Keys(_ context.Context, keyID string) ([]*Key, error) {
	var keys []*Key
	for _, p := range r.Published() {
		if keyID == "" || p.Key.keyID == keyID {
			keys = append(keys, p.Key)
		}
	}
	return keys, nil
}
