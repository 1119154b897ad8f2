package jws

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/recovered"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// Signer signs payloads. One call returns the algorithm, key ID and signature, so that no
// rotation of keys can come between them. Its methods are safe for concurrent use.
type Signer interface {
	// Sign signs a token with this payload, at most 2,097,152 bytes. An error in
	// which errors.Is finds [refusal.ErrRetry] means that the signer did not answer.
	Sign(ctx context.Context, payload []byte) (*Signature, error)
}

// Signature is the answer of a [Signer] for a payload.
type Signature struct {
	// Header is the header as it was signed, in base64url.
	Header string
	// Value is the signature in base64url.
	Value string
	// Key is the public key with which the token verifies.
	Key *Key
}

// Token assembles the token in compact form (RFC 7515, section 7.1): header, payload and
// signature. The payload must be the one that was signed.
func (s *Signature) Token(payload []byte) string {
	return s.Header + "." + encoding.EncodeToString(payload) + "." + s.Value
}

// TypeJWT is the header member typ of tokens that an external signer of Kubernetes makes
// (KEP-740; pkg/serviceaccount/externaljwt/plugin/plugin.go asks for it). Tokens that
// kube-apiserver signs itself have none.
const TypeJWT = "JWT"

// SignerOptions are the choices of [NewSigner].
type SignerOptions struct {
	// KeyID is the ID of the key, as in KeyOptions. If empty, it is derived.
	KeyID string
	// Algorithm is one that fits the key, as in KeyOptions. If empty, it is the usual
	// one.
	Algorithm Algorithm
	// Type is the header member typ: TypeJWT, or empty for none.
	Type string
}

// CryptoSigner is a [Signer] whose private key is any crypto.Signer: one in memory, in a TPM,
// reached through PKCS #11 or in a cloud's key service. It is safe for concurrent use.
//
// Its tokens have the header {"alg":…,"kid":…}, with "typ":"JWT" at the end if the options say
// so, in the bytes that kube-apiserver writes. Before it is returned, each signature is
// verified with the public key that the crypto.Signer had at the beginning: a device that
// computes wrongly, or that has a different key by then, gives an error and no token.
//
// A crypto.Signer takes no context and promises nothing about concurrent use. One that is not a
// key in memory (of crypto/rsa, crypto/ecdsa or crypto/ed25519) is called once at a time, and a
// call whose context ends returns at once. The device's own call continues in a goroutine until
// the device answers; the answer is dropped. So a device that never answers makes all further
// calls wait, for as long as their contexts allow, but no goroutines pile up. A panic of the device's
// code is the error of that call.
type CryptoSigner struct {
	private secret.Value[crypto.Signer]
	key     *Key
	header  []byte        // in base64url
	slot    chan struct{} // holds the call under way; nil for a key in memory
}

// NewSigner makes a signer. The private key's Public must be one that [NewKey] accepts, and
// its Sign must accept the digest of the algorithm: PKCS #1 v1.5 and PSS with a salt of the
// digest's length (as *rsa.PSSOptions) for RSA, ECDSA with a signature in DER or of two halves
// of fixed width, and for Ed25519 the message itself with crypto.Hash(0).
//
// The errors are from NewKey, or [refusal.CheckConfig].
func NewSigner(private crypto.Signer, opts SignerOptions) (*CryptoSigner, error) {
	if private == nil {
		return nil, refusal.Config("crypto.Signer", "", "one")
	}
	if opts.Type != "" && opts.Type != TypeJWT {
		return nil, refusal.Config("Type", opts.Type, TypeJWT+" or none")
	}
	key, err := NewKey(private.Public(), KeyOptions{KeyID: opts.KeyID, Algorithm: opts.Algorithm})
	if err != nil {
		return nil, err
	}
	s := &CryptoSigner{private: secret.New(private), key: key, header: appendHeader(nil, key.algorithm, key.keyID, opts.Type)}
	switch private.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey, ed25519.PrivateKey: // do not block, and allow concurrent use
	default:
		s.slot = make(chan struct{}, 1)
	}
	return s, nil
}

// Key returns the public key with which the signer's tokens verify, or nil for the zero value.
func (s *CryptoSigner) Key() *Key { return s.key }

// Sign signs a token with this payload. The token must not be longer than [MaxTokenSize].
//
// The errors are "payload-size"; "signer-output" for a signature that does not verify;
// and "signer", in which errors.Is also finds [refusal.ErrRetry], if the private key returned an
// error or panicked, or the context ended, with that error in it.
func (s *CryptoSigner) Sign(ctx context.Context, payload []byte) (*Signature, error) {
	if s == nil || s.key == nil {
		return nil, refusal.Config("signer", "", "one that NewSigner made")
	}
	size := len(s.header) + encoding.EncodedLen(len(payload)) + encoding.EncodedLen(s.key.signatureSize()) + 2
	if size > MaxTokenSize {
		return nil, &Error{Check: checkPayloadSize, Got: "a token of " + bytesText(size), Want: "at most " + bytesText(MaxTokenSize)}
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
		return nil, &Error{Check: checkSignerOutput, Err: err}
	}
	return &Signature{Header: string(s.header), Value: encoding.EncodeToString(signature), Key: s.key}, nil
}

// ask calls the private key's Sign. It waits for its turn, and for the answer, until the
// context ends.
func (s *CryptoSigner) ask(ctx context.Context, message []byte) ([]byte, error) {
	private := s.private.Reveal()
	input, options := s.input(message)
	if s.slot == nil {
		return private.Sign(rand.Reader, input, options)
	}
	select {
	case s.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var signature []byte
	answered := recovered.Go(func() (err error) {
		defer func() { <-s.slot }()
		signature, err = private.Sign(rand.Reader, input, options)
		return err
	})
	select {
	case err := <-answered:
		return signature, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// input returns the input and the options of the private key's Sign.
func (s *CryptoSigner) input(message []byte) ([]byte, crypto.SignerOpts) {
	hashed, hash := s.key.algorithm.digest(nil, message)
	if s.key.algorithm.pss() {
		return hashed, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	return hashed, hash
}

// fixedWidth turns an ECDSA signature in DER (RFC 3279, section 2.2.3) into its two halves of
// fixed width (RFC 7518, section 3.4). Anything that is not such DER is returned as it is:
// either it has that form already, or it will not verify.
func fixedWidth(der []byte, half int) []byte {
	var r, s []byte
	input := cryptobyte.String(der)
	var sequence cryptobyte.String
	if !input.ReadASN1(&sequence, asn1.SEQUENCE) || !input.Empty() ||
		!sequence.ReadASN1Integer(&r) || !sequence.ReadASN1Integer(&s) || !sequence.Empty() ||
		len(r) > half || len(s) > half {
		return der
	}
	fixed := make([]byte, 2*half)
	copy(fixed[half-len(r):], r)
	copy(fixed[2*half-len(s):], s)
	return fixed
}

// notSigned is the error for a private key that gave no signature.
func notSigned(err error) error {
	return &Error{Check: checkSigner, Got: "no signature", Err: &Error{Check: refusal.ErrRetry, Err: err}}
}
