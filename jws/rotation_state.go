package jws

import (
	"bytes"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// CheckRotationState: no state as [RotatingSigner.State] writes it.
const CheckRotationState Check = "rotation-state"

// MaxRotationStateSize is the length in bytes of the longest state that is read.
const MaxRotationStateSize = 1 << 20

// State returns all that a restart must not lose, for the caller to store: the published
// keys, which of them signs, which one is next and from when, and when the others leave.
// It changes with Rotate, with Revoke and with time; to store it after the first two is
// enough. It is JSON, one text for one state, and holds no private key; but whoever can
// change it publishes keys of his own, so it belongs where the private keys are.
func (r *RotatingSigner) State() ([]byte, error) {
	if err := r.made(); err != nil {
		return nil, err
	}
	return marshalState(r.Published())
}

// ResumeRotatingSigner makes a signer that goes on as if the one that wrote the state had
// never stopped. Of signers, which may be given in any order, it takes the one whose key
// the state says signs now, and the one of the next key. Where that of the next key is not
// given and it has not begun to sign, the key is left out, for it has signed nothing.
// Signers of other keys are not used. In config Retired must be empty.
//
// The errors are [CheckRotationState], [CheckRotation] where the signer of the key that
// signs is missing, and those of [NewRotatingSigner].
func ResumeRotatingSigner(state []byte, config RotationConfig, signers ...KeySigner) (*RotatingSigner, error) {
	if len(config.Retired) > 0 {
		return nil, &Error{Check: CheckRotation, Got: "Retired beside a state", Want: "those of the state alone"}
	}
	for _, s := range signers {
		if err := checkKeySigner(s); err != nil {
			return nil, err
		}
	}
	keys, err := parseState(state)
	if err != nil {
		return nil, err
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	signing, old := keys[0], keys[1:]
	var next PublishedKey
	if len(old) > 0 && !old[0].SignsFrom.IsZero() {
		next, old = old[0], old[1:]
	}
	retired := make([]RetiredKey, 0, 1+len(old))
	if next.Key != nil && !config.Now().Before(next.SignsFrom) {
		retired = append(retired, RetiredKey{signing.Key, next.SignsFrom.Add(config.Retain)})
		signing, next = next, PublishedKey{}
	}
	for _, k := range old {
		retired = append(retired, RetiredKey{k.Key, k.Until})
	}
	resumed := &rotation{current: signerOf(signing.Key, signers), next: signerOf(next.Key, signers)}
	if resumed.current == nil {
		return nil, &Error{Check: CheckRotation, Got: "no signer of the key that signs", Want: signing.Key.keyID}
	}
	if resumed.next != nil {
		resumed.from = next.SignsFrom
	}
	return startRotating(resumed, retired, config)
}

// signerOf returns the signer with that key, or nil.
func signerOf(key *Key, signers []KeySigner) KeySigner {
	for _, s := range signers {
		if sameKey(key, s.Key()) {
			return s
		}
	}
	return nil
}

// marshalState writes {"keys":[{"key":JWK,"signsFrom":…,"until":…},…]} in the order of
// Published, times as RFC 3339 in UTC where they are there.
func marshalState(keys []PublishedKey) ([]byte, error) {
	b := []byte(`{"keys":[`)
	for i, k := range keys {
		text, err := k.Key.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"key":`...), text...)
		for _, at := range []struct {
			name string
			time time.Time
		}{{"signsFrom", k.SignsFrom}, {"until", k.Until}} {
			if !at.time.IsZero() {
				b = appendMember(b, at.name, at.time.UTC().Format(time.RFC3339Nano))
			}
		}
		b = append(b, '}')
	}
	return append(b, `]}`...), nil
}

// parseState reads what marshalState writes, to the byte: first the key that signs, then
// the next one if there is one, then those that sign no more.
func parseState(data []byte) ([]PublishedKey, error) {
	if len(data) > MaxRotationStateSize {
		return nil, &Error{Check: CheckRotationState, Got: bytesText(len(data)), Want: "at most " + bytesText(MaxRotationStateSize)}
	}
	var keys []PublishedKey
	r := strictjson.NewReader(data)
	err := r.Object(func([]byte) error {
		return r.Array(func() error {
			if len(keys) == 1+maxRetired {
				return &Error{Check: CheckRotationState, Got: "more keys", Want: "at most " + strconv.Itoa(1+maxRetired)}
			}
			k, err := readPublished(r)
			keys = append(keys, k)
			return err
		})
	})
	switch {
	case err != nil:
		return nil, &Error{Check: CheckRotationState, Err: err}
	case len(keys) == 0:
		return nil, &Error{Check: CheckRotationState, Got: "no key", Want: "one that signs"}
	}
	ids := make(map[string]bool)
	for i, k := range keys {
		signs, isNext := k.SignsFrom.IsZero() && k.Until.IsZero(), !k.SignsFrom.IsZero()
		if k.Key == nil || ids[k.Key.keyID] || signs != (i == 0) || isNext && (i != 1 || !k.Until.IsZero()) {
			return nil, &Error{Check: CheckRotationState, Got: "another entry at position " + strconv.Itoa(i),
				Want: "the key that signs, then the next, then those with an end, each with an ID of its own"}
		}
		ids[k.Key.keyID] = true
	}
	if again, err := marshalState(keys); err != nil || !bytes.Equal(again, data) {
		return nil, &Error{Check: CheckRotationState, Got: "another text", Want: "a state as it was written", Err: err}
	}
	return keys, nil
}

// readPublished reads one entry of a state.
func readPublished(r *strictjson.Reader) (PublishedKey, error) {
	var k PublishedKey
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "key":
			j, err := readJWK(r)
			if err == nil {
				k.Key, err = j.key()
			}
			return err
		case "signsFrom":
			return readTime(r, &k.SignsFrom)
		case "until":
			return readTime(r, &k.Until)
		}
		return r.Skip() // not there when the state is written again
	})
	return k, err
}

func readTime(r *strictjson.Reader, t *time.Time) error {
	text, err := r.String()
	if err == nil {
		*t, err = time.Parse(time.RFC3339Nano, text)
	}
	return err
}
