package jws

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"math/big"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// ask calls the private key's Sign. It waits for a slot, and for the answer, until the
// context ends.
func (s *CryptoSigner) ask(ctx context.Context, message []byte) ([]byte, error) {
	private := s.private.Reveal()
	input, options := s.input(message)
	if s.slots == nil {
		return private.Sign(rand.Reader, input, options)
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type answer struct {
		signature []byte
		err       error
	}
	answered := make(chan answer, 1) // nobody may be left to receive
	go func() {
		defer func() { <-s.slots }()
		signature, err := private.Sign(rand.Reader, input, options)
		answered <- answer{signature, err}
	}()
	select {
	case a := <-answered:
		return a.signature, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// input returns what the private key is to sign, and how.
func (s *CryptoSigner) input(message []byte) ([]byte, crypto.SignerOpts) {
	hash := s.key.algorithm.Hash()
	switch s.key.algorithm {
	case EdDSA:
		return message, hash
	case PS256, PS384, PS512:
		return digest(make([]byte, 0, sha512.Size), hash, message), &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	return digest(make([]byte, 0, sha512.Size), hash, message), hash
}

// fixedWidth turns an ECDSA signature in DER (RFC 3279, section 2.2.3) into its two
// halves of fixed width (RFC 7518, section 3.4). What is no such DER is returned as it
// is: either it has that form already, or it will not verify.
func fixedWidth(der []byte, half int) []byte {
	var r, s big.Int
	input := cryptobyte.String(der)
	var sequence cryptobyte.String
	if !input.ReadASN1(&sequence, asn1.SEQUENCE) || !input.Empty() ||
		!sequence.ReadASN1Integer(&r) || !sequence.ReadASN1Integer(&s) || !sequence.Empty() {
		return der
	}
	if r.Sign() < 0 || s.Sign() < 0 || r.BitLen() > 8*half || s.BitLen() > 8*half {
		return der
	}
	fixed := make([]byte, 2*half)
	r.FillBytes(fixed[:half])
	s.FillBytes(fixed[half:])
	return fixed
}

// notSigned is the error of a private key that gave no signature.
func notSigned(err error) error {
	return &Error{Check: CheckSigner, Got: "no signature", Err: &Error{Check: ErrRetry, Err: err}}
}
