package attest

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// Checks of the key ring.
const (
	// checkRingKey: the binding names a key that is unknown, retired or not yet active.
	checkRingKey Check = "ring-key"
	// checkRingStale: the ring was read more than 60 seconds ago, in the future, or not yet.
	// Always together with [refusal.ErrRetry].
	checkRingStale Check = "ring-stale"
	// checkRingEmpty: the ring holds no key that is active and not retired.
	// Always together with [refusal.ErrRetry].
	checkRingEmpty Check = "ring-empty"
)

// RingKey is one challenge key. It makes challenges from ActiveAt on, and their answers verify until
// RetiredAt.
type RingKey struct {
	// ID is how a challenge refers to the key.
	ID [message.KeyIDSize]byte
	// Secret is the key from which challenges are derived. With it an attacker can impersonate any
	// machine on [RoadEK]: guard it like the CA's key.
	Secret secret.Value[[message.SecretSize]byte]
	// ActiveAt is when the key begins to make challenges.
	ActiveAt time.Time
	// RetiredAt is zero for a key in use.
	RetiredAt time.Time
}

// NewRingKey makes a key with a random identifier and secret.
func NewRingKey(activeAt time.Time) RingKey {
	k := RingKey{ActiveAt: activeAt}
	var random [message.SecretSize]byte
	// crypto/rand.Read never fails and never returns fewer bytes.
	_, _ = rand.Read(k.ID[:])
	_, _ = rand.Read(random[:])
	k.Secret = secret.New(random)
	return k
}

// MarshalJSON returns an error: an encoder would leave out the secret, and the key ring would be lost.
// [MarshalRingKeys] writes keys that can be read again.
func (k RingKey) MarshalJSON() ([]byte, error) {
	return nil, errors.New("attest: key ring: a key is not stored as JSON: use MarshalRingKeys")
}

func (k *RingKey) retired(now time.Time) bool {
	return !k.RetiredAt.IsZero() && !k.RetiredAt.After(now)
}

// KeyRing holds the challenge keys of a control plane. The zero value is for a program that starts
// before it can read the keys: until the first [KeyRing.Refresh] every challenge and verification is a
// retry with "ring-stale". Replicas with the same keys verify answers to each other's challenges: there
// is no other shared state. It is safe for use from many goroutines.
type KeyRing struct {
	mu     sync.RWMutex
	keys   []RingKey
	readAt time.Time
	static bool
}

// NewStaticKeyRing makes a ring of keys that no other process rotates, so it never becomes stale. It
// returns an error as [KeyRing.Refresh] does.
func NewStaticKeyRing(keys ...RingKey) (*KeyRing, error) {
	if err := checkRingKeys(keys); err != nil {
		return nil, err
	}
	return &KeyRing{keys: slices.Clone(keys), static: true}, nil
}

func checkRingKeys(keys []RingKey) error {
	if len(keys) == 0 {
		return errors.New("attest: a key ring needs at least one key")
	}
	seen := make(map[[message.KeyIDSize]byte]bool, len(keys))
	for _, k := range keys {
		switch {
		case seen[k.ID]:
			return fmt.Errorf("attest: key ring: identifier %s occurs twice", hexID(k.ID))
		case k.Secret.Reveal() == [message.SecretSize]byte{}:
			return fmt.Errorf("attest: key ring: key %s has no secret", hexID(k.ID))
		case k.ActiveAt.IsZero():
			return fmt.Errorf("attest: key ring: key %s does not say when it becomes active", hexID(k.ID))
		case !k.RetiredAt.IsZero() && k.RetiredAt.Before(k.ActiveAt):
			return fmt.Errorf("attest: key ring: key %s is retired before it is active", hexID(k.ID))
		}
		seen[k.ID] = true
	}
	return nil
}

// Refresh replaces the keys with keys that were read from shared storage at readAt; call it again well
// within 60 seconds. It is an error, and changes nothing, if the keys were read before the present ones,
// if there are no keys, an identifier occurs twice, a secret is all zero, ActiveAt is zero, or a key is retired
// before it is active, and for a static ring. readAt is by the verifier's clock: if that was set back,
// make a new ring and a new verifier.
//
// Never call Refresh(oldKeys, time.Now()) after a failed read: that hides that the ring is stale.
func (r *KeyRing) Refresh(keys []RingKey, readAt time.Time) error {
	if readAt.IsZero() {
		return errors.New("attest: a key ring needs the time at which it was read")
	}
	if err := checkRingKeys(keys); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.static:
		return errors.New("attest: a static key ring is not refreshed")
	case readAt.Before(r.readAt):
		return fmt.Errorf("attest: key ring: a reading of %s is older than the one of %s", rfc3339(readAt), rfc3339(r.readAt))
	}
	r.keys, r.readAt = slices.Clone(keys), readAt
	return nil
}

// fresh returns the keys, or a retry if they are stale.
func (r *KeyRing) fresh(now time.Time) ([]RingKey, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if age := now.Sub(r.readAt); !r.static && (age > message.MaxRingAge || age < -clockSkew) {
		got := "a ring that has not been read yet"
		if !r.readAt.IsZero() {
			got = "a ring read at " + rfc3339(r.readAt)
		}
		return nil, &Error{Check: checkRingStale, Got: got,
			Want: "one read within " + message.MaxRingAge.String(), Err: refusal.ErrRetry}
	}
	return r.keys, nil // never modified
}

// newest returns the key for new challenges: of all active keys that are not retired, the one that
// became active last.
func (r *KeyRing) newest(now time.Time) (*RingKey, error) {
	keys, err := r.fresh(now)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(k RingKey) bool { return k.ActiveAt.After(now) || k.retired(now) })
	if len(keys) == 0 {
		return nil, &Error{Check: checkRingEmpty, Want: "a key that is active and not retired", Err: refusal.ErrRetry}
	}
	best := slices.MaxFunc(keys, func(a, b RingKey) int { return a.ActiveAt.Compare(b.ActiveAt) })
	return &best, nil
}

// lookup returns the key of an answered challenge. A key that becomes active within clockSkew is a
// retry: another replica, whose clock is ahead, may already use it.
func (r *KeyRing) lookup(id [message.KeyIDSize]byte, now time.Time) (*RingKey, error) {
	keys, err := r.fresh(now)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(keys, func(k RingKey) bool { return k.ID == id })
	if n < 0 {
		return nil, checkRingKey.Refuse("unknown key "+hexID(id), "a key of the ring")
	}
	switch k := &keys[n]; {
	case k.retired(now):
		return nil, checkRingKey.Refuse("key "+hexID(id)+", retired "+rfc3339(k.RetiredAt), "a key that is not retired")
	case k.ActiveAt.After(now.Add(clockSkew)):
		return nil, checkRingKey.Refuse("key "+hexID(id)+", active from "+rfc3339(k.ActiveAt), "a key that is active")
	case k.ActiveAt.After(now):
		return nil, &Error{Check: checkRingKey, Got: "key " + hexID(id) + ", active in a moment", Want: "a key that is active", Err: refusal.ErrRetry}
	}
	return &keys[n], nil
}

// RotateKeys adds a new key and returns true, unless a key that is not retired became active less than
// after ago, or is about to become active. The new key becomes active 2 × 60 seconds after now, when
// every replica has read it. Keys in use until then are retired 2 hours later, and keys retired at now
// are left out. A key that would become active more than a minute later than the new one was made by a
// clock that was ahead: it is ignored and kept unchanged. The given slice is not changed.
func RotateKeys(keys []RingKey, now time.Time, after time.Duration) (rotated []RingKey, isNew bool) {
	latest := now.Add(2*message.MaxRingAge + clockSkew)
	if slices.ContainsFunc(keys, func(k RingKey) bool {
		return !k.retired(now) && k.ActiveAt.After(now.Add(-after)) && !k.ActiveAt.After(latest)
	}) {
		return keys, false
	}
	next := NewRingKey(now.Add(2 * message.MaxRingAge))
	end := next.ActiveAt.Add(message.RetireAfter)
	for _, k := range keys {
		if !k.ActiveAt.After(latest) && (k.RetiredAt.IsZero() || k.RetiredAt.After(end)) {
			k.RetiredAt = end
		}
		if !k.retired(now) {
			rotated = append(rotated, k)
		}
	}
	return append(rotated, next), true
}

// challengeSecret derives the secret of the challenge with that Binding, for a format such as
// "tpm/v1".
func (k *RingKey) challengeSecret(format string, binding []byte) []byte {
	key := k.Secret.Reveal()
	return message.Secret(key[:], format, binding)
}

// hexID names a key in messages: its identifier in lower-case hexadecimal.
func hexID(id [message.KeyIDSize]byte) string { return hex.EncodeToString(id[:]) }

// ringKeyData is one encoded key, big-endian. The times are Unix seconds.
type ringKeyData struct {
	Secret              [message.SecretSize]byte
	ActiveAt, RetiredAt uint64
}

// checkTimes refuses times that cannot be encoded.
func (d *ringKeyData) checkTimes(name string) error {
	if d.ActiveAt == 0 || max(d.ActiveAt, d.RetiredAt) > der.MaxUnixSeconds {
		return fmt.Errorf("attest: key ring: key %s has a time out of range", name)
	}
	return nil
}

// maxRingKeys is the most keys that [ParseRingKeys] reads.
const maxRingKeys = 64

// MarshalRingKeys returns keys in the form of a Secret's data. The name is the identifier in
// 16 lower-case hexadecimal digits. The value is 48 bytes: the secret, then ActiveAt and
// RetiredAt in Unix seconds, big-endian, 8 bytes each (0: not retired). Fractions of a second
// are lost. It returns an error as [KeyRing.Refresh] does, and for times outside 1970 to 9999 or
// more than 64 keys.
func MarshalRingKeys(keys []RingKey) (map[string][]byte, error) {
	if err := checkRingKeys(keys); err != nil {
		return nil, err
	}
	if len(keys) > maxRingKeys {
		return nil, fmt.Errorf("attest: key ring: %d keys, at most %d", len(keys), maxRingKeys)
	}
	data := make(map[string][]byte, len(keys))
	for _, k := range keys {
		d := ringKeyData{Secret: k.Secret.Reveal(), ActiveAt: uint64(k.ActiveAt.Unix())}
		if !k.RetiredAt.IsZero() {
			d.RetiredAt = uint64(k.RetiredAt.Unix())
		}
		if err := d.checkTimes(hexID(k.ID)); err != nil {
			return nil, err
		}
		data[hexID(k.ID)], _ = binary.Append(nil, binary.BigEndian, &d) // never fails
	}
	return data, nil
}

// ParseRingKeys reads the data of [MarshalRingKeys], at most 64 keys, and sorts them by ActiveAt. An
// entry whose name has characters other than hexadecimal digits is ignored. Any other entry that is
// not a key is an error that names the entry and never its value.
func ParseRingKeys(data map[string][]byte) ([]RingKey, error) {
	keys := make([]RingKey, 0, min(len(data), maxRingKeys))
	for name, v := range data {
		if strings.Trim(name, "0123456789abcdefABCDEF") != "" {
			continue
		}
		if len(keys) == maxRingKeys {
			return nil, fmt.Errorf("attest: key ring: over %d keys", maxRingKeys)
		}
		id, err := hex.DecodeString(name)
		if err != nil || len(id) != message.KeyIDSize || hex.EncodeToString(id) != name {
			return nil, fmt.Errorf("attest: key ring: name %q is no identifier of 16 lower-case hexadecimal digits", name)
		}
		var d ringKeyData
		if len(v) != binary.Size(d) {
			return nil, fmt.Errorf("attest: key ring: key %s has %d bytes, want %d", name, len(v), binary.Size(d))
		}
		_, _ = binary.Decode(v, binary.BigEndian, &d) // never fails
		if err := d.checkTimes(name); err != nil {
			return nil, err
		}
		k := RingKey{ID: [message.KeyIDSize]byte(id), Secret: secret.New(d.Secret), ActiveAt: time.Unix(int64(d.ActiveAt), 0).UTC()}
		if d.RetiredAt != 0 {
			k.RetiredAt = time.Unix(int64(d.RetiredAt), 0).UTC()
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b RingKey) int {
		return cmp.Or(a.ActiveAt.Compare(b.ActiveAt), slices.Compare(a.ID[:], b.ID[:]))
	})
	return keys, checkRingKeys(keys)
}
