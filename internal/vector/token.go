package vector

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/claims/extsigner"
	"github.com/nodeattest/nodeattest/internal/forge"
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
	key := forge.Must(jws.NewKey(publicKey(k.Key), jws.KeyOptions{KeyID: k.KeyID, Algorithm: jws.Algorithm(k.Algorithm)}))
	_, err := jws.Verify(ctx, string(k.Text), forge.Must(jws.NewStaticKeySet(key)))
	return err
}

// Signer is a claim set before an external signer of service-account tokens (KEP-740).
// Acceptance means that it is signed, byte for byte.
type Signer struct {
	// Issuer is the issuer that the signer signs for.
	Issuer string `json:"issuer"`
	// MaxLifetimeSeconds is the longest lifetime of a token that it signs.
	MaxLifetimeSeconds int64 `json:"maxLifetimeSeconds"`
	// Claims is the claim set.
	Claims []byte `json:"claims"`
}

// sign asks an extsigner.Service with a new key, whose clock is the environment's.
func (s *Signer) sign(ctx context.Context, e *Environment) error {
	key := forge.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	signer := forge.Must(jws.NewSigner(key, jws.SignerOptions{Type: jws.TypeJWT}))
	keys := forge.Must(jws.NewStaticKeySet(signer.Key()))
	service := forge.Must(extsigner.NewService(extsigner.ServiceConfig{
		Issuer: s.Issuer, Signer: signer, Keys: keys, RefreshHint: time.Minute,
		MaxTokenLifetime: time.Duration(s.MaxLifetimeSeconds) * time.Second, Now: func() time.Time { return e.Now },
	}))
	segment := base64.RawURLEncoding.EncodeToString(s.Claims)
	answer, err := service.Sign(ctx, segment)
	if err != nil {
		return err
	}
	token, err := jws.Verify(ctx, answer.Header+"."+segment+"."+answer.Signature, keys)
	if err == nil && string(token.Payload) != string(s.Claims) {
		err = errors.New("other claims are signed")
	}
	return err
}
