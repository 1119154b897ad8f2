package jws

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"strconv"

	"github.com/nodeattest/nodeattest/secret"
)

// The checks of a [CryptoSigner].
const (
	// CheckSigner: a crypto.Signer or options that cannot be used, or a private key that
	// did not sign.
	CheckSigner Check = "signer"
	// CheckSignerOutput: what a private key returned as its signature is none, or one
	// with another key or over other bytes. It is never handed on.
	CheckSignerOutput Check = "signer-output"
)

// TypeJWT is the header member typ of tokens that an external signer of Kubernetes makes
// (KEP-740; pkg/serviceaccount/externaljwt/plugin/plugin.go asks for it). Tokens that
// kube-apiserver signs itself have none.
const TypeJWT = "JWT"

// SignerOptions are the choices of [NewSigner]. A nil pointer means the zero value.
type SignerOptions struct {
	// KeyID is the ID of the key, as in KeyOptions. If empty, it is derived.
	KeyID string
	// Algorithm is one that fits the key, as in KeyOptions. If empty, it is the usual
	// one.
	Algorithm Algorithm
	// Type is the header member typ: TypeJWT, or empty for none.
	Type string
	// Concurrent is how many calls of the private key's Sign there may be at a time. 0
	// is one, for a crypto.Signer promises nothing about concurrent use; but no limit
	// for the keys in memory of crypto/rsa, crypto/ecdsa and crypto/ed25519.
	Concurrent int
}

// CryptoSigner is a [Signer] whose private key is any crypto.Signer: one in memory, in a
// TPM, behind PKCS #11 or in a cloud's key service. It is safe for concurrent use.
//
// Its tokens have the header {"alg":…,"kid":…}, and "typ":"JWT" behind it where the
// options say so, in the bytes that kube-apiserver writes. Each signature is verified
// with the public key that the crypto.Signer showed at the beginning before it is
// returned: a device that computes wrongly, or that has got another key meanwhile, gives
// an error and no token.
//
// A crypto.Signer knows no context. With one that is not a key in memory, a call whose
// context ends returns at once; what the device was asked goes on in a goroutine until
// the device answers, its answer is dropped, and until then it counts as one of the
// Concurrent calls: a device that never answers makes all further calls wait, for as
// long as their contexts allow, and no goroutines pile up.
type CryptoSigner struct {
	private secret.Value[crypto.Signer]
	key     *Key
	header  []byte        // in base64url
	slots   chan struct{} // holds one element for each call under way; nil for a key in memory
}

// NewSigner makes a signer. The private key's Public must be one that [NewKey] takes, and
// its Sign must take the digest of the algorithm: PKCS #1 v1.5 and PSS with a salt of
// the digest's length (as *rsa.PSSOptions) for RSA, ECDSA with a signature in DER or of
// two halves of fixed width, and for Ed25519 the message itself with crypto.Hash(0).
//
// The errors are those of NewKey and [CheckSigner].
func NewSigner(private crypto.Signer, options *SignerOptions) (*CryptoSigner, error) {
	if private == nil {
		return nil, &Error{Check: CheckSigner, Got: "no crypto.Signer"}
	}
	var o SignerOptions
	if options != nil {
		o = *options
	}
	if o.Type != "" && o.Type != TypeJWT {
		return nil, &Error{Check: CheckSigner, Got: "type " + o.Type, Want: TypeJWT + " or none"}
	}
	if o.Concurrent < 0 {
		return nil, &Error{Check: CheckSigner, Got: strconv.Itoa(o.Concurrent) + " concurrent calls", Want: "0 or more"}
	}
	key, err := NewKey(private.Public(), &KeyOptions{KeyID: o.KeyID, Algorithm: o.Algorithm})
	if err != nil {
		return nil, err
	}
	s := &CryptoSigner{private: secret.New(private), key: key, header: encodeHeader(key.algorithm, key.keyID, o.Type)}
	if !inMemory(private) || o.Concurrent > 0 {
		s.slots = make(chan struct{}, max(o.Concurrent, 1))
	}
	return s, nil
}

// inMemory reports whether a key neither blocks nor minds concurrent use.
func inMemory(private crypto.Signer) bool {
	switch private.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey:
		return true
	}
	return false
}

// Key returns the public key with which the signer's tokens verify, or nil of the zero
// value.
func (s *CryptoSigner) Key() *Key {
	if s == nil {
		return nil
	}
	return s.key
}

// Sign signs a token with this payload. The token must not be longer than [MaxTokenSize].
//
// The errors are [CheckPayloadSize]; [CheckSignerOutput] for a signature that does not
// verify; and [CheckSigner], in which errors.Is finds [ErrRetry] too, where the private
// key returned an error or the context ended, with that error in it.
func (s *CryptoSigner) Sign(ctx context.Context, payload []byte) (*Signature, error) {
	if s == nil || s.key == nil {
		return nil, &Error{Check: CheckSigner, Got: "no signer"}
	}
	size := len(s.header) + encoding.EncodedLen(len(payload)) + encoding.EncodedLen(s.key.signatureSize()) + 2
	if size > MaxTokenSize {
		return nil, &Error{Check: CheckPayloadSize, Got: "a token of " + bytesText(size), Want: "at most " + bytesText(MaxTokenSize)}
	}
	if ctx.Err() != nil {
		return nil, notSigned(ctx.Err())
	}
	message := make([]byte, 0, size)
	message = append(message, s.header...)
	message = append(message, '.')
	message = encoding.AppendEncode(message, payload)

	signature, err := s.ask(ctx, message)
	if err != nil {
		return nil, notSigned(err)
	}
	if _, ok := s.key.public.(*ecdsa.PublicKey); ok {
		signature = fixedWidth(signature, s.key.signatureSize()/2)
	}
	if err := s.key.verify(message, signature); err != nil {
		return nil, &Error{Check: CheckSignerOutput, Err: err}
	}
	return &Signature{Header: string(s.header), Value: encoding.EncodeToString(signature), Key: s.key}, nil
}
