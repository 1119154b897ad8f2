package jws

import (
	"errors"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// ParseJWKS reads a set of public keys (RFC 7517, section 5) and returns those that
// verify tokens of this package, in their order. Each is read as [ParseJWK] does, with
// one difference that the RFC asks for: a key whose kty, crv, alg or use this package
// does not support, or whose key_ops are other ones, is left out. All else that makes a
// key unfit refuses the whole set: a malformed or weak key, private or symmetric key
// material in any entry, two keys with one key ID and algorithm. A set of no keys is
// none of these: the result is empty.
//
// The errors are [CheckKeySet] and those of ParseJWK.
func ParseJWKS(data []byte) ([]*Key, error) {
	if len(data) > MaxJWKSSize {
		return nil, &Error{Check: CheckKeySet, Got: bytesText(len(data)), Want: "at most " + bytesText(MaxJWKSSize)}
	}
	var entries []*jwk
	found := false
	// In another case keys is skipped: then it is missing, or a name there twice.
	members := strictjson.Members{"keys": func(r *strictjson.Reader) error {
		found = true
		return r.Array(func() error {
			if len(entries) == MaxJWKSKeys {
				return &Error{Check: CheckKeySet, Got: "more keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
			}
			j, err := readJWK(r)
			entries = append(entries, j)
			return err
		})
	}}
	err := members.Parse(data)
	if err == nil && !found {
		err = &Error{Check: CheckKeySet, Got: "no member keys"}
	}
	if err != nil {
		return nil, refuse(CheckKeySet, err)
	}
	return usable(entries)
}

// usable makes keys of all entries but those that are not for this package.
func usable(entries []*jwk) ([]*Key, error) {
	keys := make([]*Key, 0, len(entries))
	for _, j := range entries {
		k, err := j.key()
		if errors.Is(err, CheckKeyType) || errors.Is(err, CheckKeyUse) || errors.Is(err, CheckAlgorithm) {
			continue
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	if err := checkDistinct(keys); err != nil {
		return nil, err
	}
	return keys, nil
}

// MarshalJWKS returns a set of public keys as kube-apiserver serves it at
// /openid/v1/jwks: an object with the one member keys, each as [Key.MarshalJSON] writes
// it. Nil and zero keys are refused with [CheckKey]; two keys with one key ID and
// algorithm, and more than [MaxJWKSKeys], with [CheckKeySet]. [ParseJWKS] reads it.
func MarshalJWKS(keys []*Key) ([]byte, error) {
	if len(keys) > MaxJWKSKeys {
		return nil, &Error{Check: CheckKeySet, Got: strconv.Itoa(len(keys)) + " keys", Want: "at most " + strconv.Itoa(MaxJWKSKeys)}
	}
	b := []byte(`{"keys":[`)
	for i, k := range keys {
		text, err := k.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text...)
	}
	if err := checkDistinct(keys); err != nil {
		return nil, err
	}
	return append(b, `]}`...), nil
}

// checkDistinct refuses two keys with one key ID and algorithm: which of them a token
// means could not be told.
func checkDistinct(keys []*Key) error {
	type name struct {
		keyID     string
		algorithm Algorithm
	}
	seen := make(map[name]bool, len(keys))
	for _, k := range keys {
		n := name{k.keyID, k.algorithm}
		if seen[n] {
			return &Error{Check: CheckKeySet, Got: "two keys " + refusal.Text(k.keyID) + " for " + string(k.algorithm), Want: "one for each key ID and algorithm"}
		}
		seen[n] = true
	}
	return nil
}
