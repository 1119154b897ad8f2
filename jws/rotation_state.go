package jws

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// State returns all that a restart must not lose, for the caller to store: the published keys,
// which of them signs, which one is next and from when, and when the others leave. It changes
// with Rotate, with Revoke and with time; storing it after the first two is enough, and safer: by
// a clock that is ahead, keys have left that are still needed. It is
// JSON, one text for each state, and holds no private key; but anyone who can change it can
// publish keys of their own, so it belongs where the private keys are.
func (r *RotatingSigner) State() ([]byte, error) {
	state, err := r.at()
	if err != nil {
		return nil, err
	}
	return marshalState(state)
}

// ResumeRotatingSigner makes a signer that continues as if the one that wrote the state had
// never stopped. From signers, which may be given in any order, it takes the one whose key the
// state says signs now, and the one for the next key. If the one for the next key is not given
// and that key has not begun to sign, the key is left out, since it has signed nothing.
// Signers for other keys are not used. In config, Retired must be empty. Keys that are in
// Revoked are taken out as by [RotatingSigner.Revoke].
//
// The errors are "rotation-state", [refusal.CheckConfig] if the signer for the key that
// signs is missing, and those of [NewRotatingSigner].
func ResumeRotatingSigner(state []byte, config RotationConfig, signers ...KeySigner) (*RotatingSigner, error) {
	if len(config.Retired) > 0 {
		return nil, refusal.Config("Retired", "beside a state", "only those of the state")
	}
	for _, s := range signers {
		if err := checkKeySigner(s); err != nil {
			return nil, err
		}
	}
	stored, err := parseState(state)
	if err != nil {
		return nil, err
	}
	r, err := newRotatingSigner(config)
	if err != nil {
		return nil, err
	}
	for _, keyID := range r.revoked {
		if stored.index(keyID) >= 0 {
			if stored, err = stored.without(keyID); err != nil {
				return nil, err
			}
		}
	}
	stored[0].signer = signerOf(stored[0].Key, signers)
	if next := stored.next(); next != nil {
		next.signer = signerOf(next.Key, signers)
	}
	now := stored.at(r.now(), r.retain)
	if now[0].signer == nil {
		return nil, refusal.Config("signer", "of the key that signs", now[0].Key.keyID)
	}
	if next := now.next(); next != nil && next.signer == nil {
		stored = slices.Delete(stored, 1, 2)
	}
	r.state.Store(&stored) // and not what it has become: this clock may be ahead
	return r, nil
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

// rotationState is the JSON of a state.
type rotationState struct {
	Keys []rotationKey `json:"keys"` // in the order of Published
}

type rotationKey struct {
	Key       json.RawMessage `json:"key"`
	SignsFrom time.Time       `json:"signsFrom,omitzero"`
	Until     time.Time       `json:"until,omitzero"`
}

func marshalState(keys rotation) ([]byte, error) {
	state := rotationState{Keys: make([]rotationKey, 0, len(keys))}
	for _, k := range keys {
		text, err := k.Key.MarshalJSON()
		if err != nil {
			return nil, err
		}
		state.Keys = append(state.Keys, rotationKey{text, k.SignsFrom.UTC(), k.Until.UTC()})
	}
	return json.Marshal(state)
}

// parseState reads exactly what marshalState writes, to the byte: first the key that signs,
// then the next one if there is one, then those that no longer sign.
func parseState(data []byte) (rotation, error) {
	if len(data) > maxRotationStateSize {
		return nil, &Error{Check: checkRotationState, Got: bytesText(len(data)), Want: "at most " + bytesText(maxRotationStateSize)}
	}
	var state rotationState
	if err := json.Unmarshal(data, &state); err != nil {
		return nil, &Error{Check: checkRotationState, Err: err}
	}
	if len(state.Keys) == 0 || len(state.Keys) > 1+maxRetired {
		return nil, &Error{Check: checkRotationState, Got: strconv.Itoa(len(state.Keys)) + " keys", Want: "1 to " + strconv.Itoa(1+maxRetired)}
	}
	keys := make(rotation, 0, len(state.Keys))
	for i, k := range state.Keys {
		key, err := parseJWK(k.Key)
		if err != nil {
			return nil, &Error{Check: checkRotationState, Err: err}
		}
		signs, isNext := k.SignsFrom.IsZero() && k.Until.IsZero(), !k.SignsFrom.IsZero()
		if keys.index(key.keyID) >= 0 || signs != (i == 0) || isNext && (i != 1 || !k.Until.IsZero()) {
			return nil, &Error{Check: checkRotationState, Got: "another entry at position " + strconv.Itoa(i),
				Want: "the key that signs, then the next, then those with an end, each with an ID of its own"}
		}
		keys = append(keys, rotating{PublishedKey: PublishedKey{Key: key, SignsFrom: k.SignsFrom, Until: k.Until}})
	}
	if again, err := marshalState(keys); err != nil || !bytes.Equal(again, data) {
		return nil, &Error{Check: checkRotationState, Got: "another text", Want: "a state as it was written", Err: err}
	}
	return keys, nil
}
