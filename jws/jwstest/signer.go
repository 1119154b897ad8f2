package jwstest

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha256" // the hash functions of the algorithms
	_ "crypto/sha512"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"math/big"
	"testing"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/secret"
)

// Signer is a jws.KeySigner that also signs headers that a jws.CryptoSigner never would. It is safe for
// concurrent use if its private key is.
type Signer struct {
	*jws.CryptoSigner
	private secret.Value[crypto.Signer]
	opts    jws.SignerOptions
}

// NewSigner makes a signer, as [OpenSigner] does. If that fails, so does the test.
func NewSigner(t testing.TB, key crypto.Signer, opts jws.SignerOptions) *Signer {
	t.Helper()
	s, err := OpenSigner(key, opts)
	if err != nil {
		t.Fatalf("jwstest: %v", err)
	}
	return s
}

// OpenSigner is [NewSigner] for use outside tests. The key is one that jws.NewSigner accepts, such as a
// tpmkey.Key in the TPM of package tpmsim; nil means a new one in memory that fits the algorithm of
// the options: RSA of 2048 bits, ECDSA or Ed25519, and P-256 if they name none. The caller closes a
// key that needs it. The errors are from jws.NewSigner.
func OpenSigner(key crypto.Signer, opts jws.SignerOptions) (*Signer, error) {
	if key == nil {
		opts.Algorithm = cmp.Or(opts.Algorithm, jws.ES256)
		var err error
		if key, err = newKey(opts.Algorithm); err != nil {
			return nil, err
		}
	}
	signer, err := jws.NewSigner(key, opts)
	if err != nil {
		return nil, err
	}
	return &Signer{CryptoSigner: signer, private: secret.New(key), opts: opts}, nil
}

// newKey makes a private key in memory. For an unknown algorithm it is one that jws.NewSigner
// refuses to use with it.
func newKey(algorithm jws.Algorithm) (crypto.Signer, error) {
	switch algorithm {
	case jws.RS256, jws.RS384, jws.RS512, jws.PS256, jws.PS384, jws.PS512:
		return rsa.GenerateKey(rand.Reader, 2048)
	case jws.ES384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case jws.ES512:
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case jws.EdDSA:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

// Token signs a payload with the usual header and returns the token in compact form. The errors
// are from jws.CryptoSigner.Sign.
func (s *Signer) Token(ctx context.Context, payload []byte) (string, error) {
	signature, err := s.Sign(ctx, payload)
	if err != nil {
		return "", err
	}
	return signature.Token(payload), nil
}

// Forge signs any header, usually JSON, and any payload, without a check of either, and returns the
// token in compact form. The error is the private key's.
func (s *Signer) Forge(header string, payload []byte) (string, error) {
	return s.segments(b64([]byte(header)), b64(payload))
}

// segments signs two segments as they are.
func (s *Signer) segments(header, payload string) (string, error) {
	signed := header + "." + payload
	signature, err := s.raw(s.Key().Algorithm(), []byte(signed))
	if err != nil {
		return "", fmt.Errorf("jwstest: the private key did not sign: %w", err)
	}
	return signed + "." + b64(signature), nil
}

// raw makes the signature of an algorithm that fits the key over any bytes (RFC 7518, section 3; RFC
// 8037, section 3.1).
func (s *Signer) raw(algorithm jws.Algorithm, signed []byte) ([]byte, error) {
	hashes := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}
	hash := hashes[string(algorithm[2:])] // 0 for EdDSA
	opts := crypto.SignerOpts(hash)
	if algorithm[0] == 'P' {
		opts = &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: hash}
	}
	signature, err := crypto.SignMessage(s.private.Reveal(), rand.Reader, signed, opts)
	if public, ok := s.Key().Public().(*ecdsa.PublicKey); ok && err == nil {
		return fixedWidth(signature, (public.Curve.Params().BitSize+7)/8), nil
	}
	return signature, err
}

// fixedWidth turns an ECDSA signature in DER into its two halves (RFC 7518, section 3.4), and
// leaves one that has that form already.
func fixedWidth(signature []byte, half int) []byte {
	var der struct{ R, S *big.Int }
	if rest, err := asn1.Unmarshal(signature, &der); err != nil || len(rest) > 0 || max(der.R.BitLen(), der.S.BitLen()) > 8*half {
		return signature
	}
	fixed := make([]byte, 2*half)
	der.R.FillBytes(fixed[:half])
	der.S.FillBytes(fixed[half:])
	return fixed
}

// b64 is base64url without padding (RFC 7515, section 2).
func b64(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
