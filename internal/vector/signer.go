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
	"github.com/nodeattest/nodeattest/jws"
)

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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return &brokenVector{err}
	}
	signer, err := jws.NewSigner(key, jws.SignerOptions{Type: jws.TypeJWT})
	if err != nil {
		return &brokenVector{err}
	}
	keys, err := jws.NewStaticKeySet(signer.Key())
	if err != nil {
		return &brokenVector{err}
	}
	service, err := extsigner.NewService(extsigner.ServiceConfig{
		Issuer: s.Issuer, Signer: signer, Keys: keys, RefreshHint: time.Minute,
		MaxTokenLifetime: time.Duration(s.MaxLifetimeSeconds) * time.Second, Now: func() time.Time { return e.Now },
	})
	if err != nil {
		return &brokenVector{err}
	}
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
