package jws

import (
	"context"
	"errors"
	"strconv"
)

// Verified is a token whose signature one of the keys of a set made. What its payload
// says is for the caller to check.
type Verified struct {
	// Token is the token as it was parsed.
	Token *Token
	// Payload is what was signed. It shares memory with the token and must not be
	// changed.
	Payload []byte
	// Key is the key with which the signature verified.
	Key *Key
}

// Verify parses a token in compact form, as [Parse] does, and checks its signature with
// the keys of a set, as [VerifyToken] does.
func Verify(ctx context.Context, token string, keys KeySet) (*Verified, error) {
	t, err := Parse(token)
	if err != nil {
		return nil, err
	}
	return VerifyToken(ctx, t, keys)
}

// VerifyToken checks the signature of a parsed token with the keys that the set has for
// its key ID, or with all of the set if it names none. Only keys of the token's algorithm
// are tried.
//
// Beside the errors of [Key.Verify] there are [CheckKeySet] where keys is nil,
// [CheckKeyID] where the set has no key of that ID, [CheckAlgorithm] where it has one but
// none of that algorithm, and an error in which errors.Is finds [ErrRetry] where the set
// could not answer.
func VerifyToken(ctx context.Context, t *Token, keys KeySet) (*Verified, error) {
	if keys == nil {
		return nil, &Error{Check: CheckKeySet, Got: "no set of keys"}
	}
	c := t.read()
	if c.algorithm == "" {
		return nil, &Error{Check: CheckForm, Got: "no token"}
	}
	candidates, err := keys.Keys(ctx, c.keyID)
	switch {
	case err != nil && errors.Is(err, ErrRetry):
		return nil, err
	case err != nil:
		return nil, &Error{Check: ErrRetry, Got: "no keys", Err: err}
	case len(candidates) == 0:
		return nil, &Error{Check: CheckKeyID, Got: c.keyID, Want: "the ID of a known key"}
	}
	var refused error
	for _, key := range candidates {
		if key == nil || key.algorithm != c.algorithm {
			continue
		}
		if refused = key.verifyContent(c); refused == nil {
			return &Verified{Token: t, Payload: c.payload, Key: key}, nil
		}
	}
	if refused == nil {
		refused = &Error{Check: CheckAlgorithm, Got: string(c.algorithm), Want: "that of one of " + strconv.Itoa(len(candidates)) + " keys"}
	}
	return nil, refused
}
