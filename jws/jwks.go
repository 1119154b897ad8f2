package jws

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// ParseJWKS reads a set of public keys (RFC 7517, section 5) and returns those with which this
// package verifies tokens, in order, each once: a key that is repeated with the same key ID
// and algorithm is one. As the RFC asks, an unfit key is left
// out: of a type, curve, algorithm or use that this package does not support, malformed
// or weak. Its tokens are then refused for an unknown key ID. If no key is left, the error
// gives the reasons; [RemoteStatus] always does.
//
// The whole set is refused for private or symmetric key material in any entry, for two keys
// with the same key ID and algorithm, and if it is not JSON that every reader understands in
// the same way. A set without entries is not refused: the result is empty.
//
// The errors are "key-set", "jwk" and "private-key".
func ParseJWKS(data []byte) ([]*Key, error) {
	keys, _, err := parseJWKS(data)
	return keys, err
}

// parseJWKS is ParseJWKS, and says why keys are left out.
func parseJWKS(data []byte) (keys []*Key, unfit, err error) {
	if len(data) > maxJWKSSize {
		return nil, nil, &Error{Check: checkKeySet, Got: bytesText(len(data)), Want: "at most " + bytesText(maxJWKSSize)}
	}
	var entries []*jwk
	found := false
	// In a different case, keys is skipped: then it is missing, or a duplicate name.
	members := strictjson.Fields{"keys": func(r *strictjson.Reader) error {
		found = true
		return r.Array(func() error {
			if len(entries) == MaxJWKSKeys {
				return &Error{Check: checkKeySet, Got: "more keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
			}
			j, err := readJWK(r)
			entries = append(entries, j)
			return err
		})
	}}
	err = members.Parse(data)
	if err == nil && !found {
		err = &Error{Check: checkKeySet, Got: "no member keys", Want: wantKeySet}
	}
	if own, ok := err.(*Error); ok { //nolint:errorlint // one inside another is a cause
		return nil, nil, own
	}
	if err != nil {
		return nil, nil, &Error{Check: checkKeySet, Got: "another text", Want: wantKeySet, Err: err}
	}
	return usable(entries)
}

// wantKeySet describes a set, for callers that gave another document: a single key, or
// certificates by key ID.
const wantKeySet = `a JWK set, {"keys": [...]}`

// maxReasons is how many of the keys that are left out an error names.
const maxReasons = 8

// usable makes keys from the entries, and says why it leaves others out.
func usable(entries []*jwk) (keys []*Key, unfit, err error) {
	var reasons []error
	for i, j := range entries {
		k, err := j.key()
		if err != nil {
			reasons = append(reasons, fmt.Errorf("key %d, %s: %w", i, refusal.Quote(j.texts["kid"]), err))
			continue
		}
		keys = append(keys, k)
	}
	if len(reasons) > 0 {
		unfit = &Error{Check: checkKeySet, Got: fmt.Sprintf("%d unfit of %d keys", len(reasons), len(entries)),
			Want: "public keys for signatures", Err: errors.Join(reasons[:min(len(reasons), maxReasons)]...)}
	}
	if len(keys) == 0 && unfit != nil {
		return nil, nil, unfit
	}
	keys, err = distinct(keys)
	return keys, unfit, err
}

// MarshalJWKS returns a set of public keys as kube-apiserver serves it at /openid/v1/jwks: an
// object with the single member keys, each as [Key.MarshalJSON] writes it, and each once. Nil
// and zero keys are refused with "key"; two keys with the same key ID and algorithm, and more
// than [MaxJWKSKeys], with "key-set". [ParseJWKS] reads it.
func MarshalJWKS(keys []*Key) ([]byte, error) {
	if len(keys) > MaxJWKSKeys {
		return nil, &Error{Check: checkKeySet, Got: strconv.Itoa(len(keys)) + " keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
	}
	if slices.ContainsFunc(keys, (*Key).missing) {
		return nil, &Error{Check: checkKey, Got: "no key"}
	}
	keys, err := distinct(keys)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string][]*Key{"keys": keys})
}

// distinct returns each key once. It refuses two with the same key ID and algorithm: one could
// not tell which of them a token means.
func distinct(keys []*Key) ([]*Key, error) {
	each := make([]*Key, 0, len(keys))
	for _, k := range keys {
		i := slices.IndexFunc(each, func(other *Key) bool { return other.keyID == k.keyID && other.algorithm == k.algorithm })
		switch {
		case i < 0:
			each = append(each, k)
		case !sameKey(each[i], k):
			return nil, &Error{Check: checkKeySet, Got: "two keys " + refusal.Text(k.keyID) + " for " + string(k.algorithm), Want: "one for each key ID and algorithm"}
		}
	}
	return each, nil
}
