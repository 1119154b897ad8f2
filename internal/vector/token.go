package vector

import (
	"context"
	"crypto/x509"

	"github.com/nodeattest/nodeattest/jws"
)

// Token is a token in compact form (RFC 7515, section 7.1), and the one key with which it
// is to verify.
type Token struct {
	// Text is the token; in base64 like all bytes, for a line end in it matters.
	Text []byte `json:"text"`
	// Key is a SubjectPublicKeyInfo, KeyID its ID, Algorithm what it is bound to.
	Key       []byte `json:"key"`
	KeyID     string `json:"keyID"`
	Algorithm string `json:"algorithm"`
}

// verify gives the token to jws.Verify. Its payload is looked at by nobody.
func (k *Token) verify(ctx context.Context) error {
	public, err := x509.ParsePKIXPublicKey(k.Key)
	if err != nil {
		return &brokenVector{err}
	}
	key, err := jws.NewKey(public, jws.KeyOptions{KeyID: k.KeyID, Algorithm: jws.Algorithm(k.Algorithm)})
	if err != nil {
		return &brokenVector{err}
	}
	keys, err := jws.NewStaticKeySet(key)
	if err != nil {
		return &brokenVector{err}
	}
	_, err = jws.Verify(ctx, string(k.Text), keys)
	return err
}
