package jws

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/nodeattest/nodeattest/internal/roca"
)

// The sizes in bits of the RSA moduli that this package accepts (RFC 7518, section 3.3,
// requires 2048 or more; above 8192 one signature takes milliseconds to verify).
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// Key is a public key that is bound to one algorithm and one key ID: it verifies tokens with
// that algorithm in their header, and with that key ID or none. It is immutable and safe for
// concurrent use. The zero value verifies nothing.
type Key struct {
	public    crypto.PublicKey
	algorithm Algorithm
	keyID     string
}

// KeyOptions are the choices of [NewKey].
type KeyOptions struct {
	// KeyID is 1 to [MaxKeyIDSize] bytes of UTF-8. If empty, it is derived by the digest of the
	// public key.
	KeyID string
	// Algorithm is one that fits the key. If empty, it is RS256 for RSA, ES256, ES384
	// and ES512 for ECDSA on P-256, P-384 and P-521, and EdDSA for Ed25519.
	Algorithm Algorithm
}

// NewKey binds a public key, which it copies. The key is an *rsa.PublicKey of 2048 to
// 8192 bits with an odd exponent from 3 to 2^31-1 and without the fingerprint of
// CVE-2017-15361, an *ecdsa.PublicKey on P-256, P-384 or P-521, or an ed25519.PublicKey.
//
// The errors are "jws-key-type", "key", [CheckAlgorithm] and [CheckKeyID].
func NewKey(public crypto.PublicKey, opts KeyOptions) (*Key, error) {
	public, fitting, err := checkPublic(public)
	if err != nil {
		return nil, err
	}
	k := &Key{public: public, algorithm: fitting[0], keyID: opts.KeyID}
	if opts.Algorithm != "" {
		if !slices.Contains(fitting, opts.Algorithm) {
			return nil, &Error{Check: CheckAlgorithm, Got: string(opts.Algorithm), Want: fmt.Sprintf("one of %v", fitting)}
		}
		k.algorithm = opts.Algorithm
	}
	if k.keyID == "" {
		k.keyID = deriveKeyID(public)
	}
	if err := checkKeyID(k.keyID); err != nil {
		return nil, err
	}
	return k, nil
}

// KeyID returns the key ID.
func (k *Key) KeyID() string { return k.keyID }

// Algorithm returns the algorithm that the key is bound to.
func (k *Key) Algorithm() Algorithm { return k.algorithm }

// Public returns the key itself, an *rsa.PublicKey, *ecdsa.PublicKey or
// ed25519.PublicKey. The caller must not change it.
func (k *Key) Public() crypto.PublicKey { return k.public }

// missing reports whether k is nil or the zero value.
func (k *Key) missing() bool { return k == nil || k.public == nil }

// checkPublic returns a copy of a key if it is fit for use, and the algorithms that fit it,
// the usual one first.
func checkPublic(public crypto.PublicKey) (crypto.PublicKey, []Algorithm, error) {
	part := &Error{Check: checkKey, Got: "a key that is nil, or a part of it", Want: "a whole key"}
	switch p := public.(type) {
	case *rsa.PublicKey:
		if p == nil || p.N == nil {
			return nil, nil, part
		}
		if err := checkRSA(p.N, p.E); err != nil {
			return nil, nil, err
		}
		return &rsa.PublicKey{N: new(big.Int).Set(p.N), E: p.E}, []Algorithm{RS256, RS384, RS512, PS256, PS384, PS512}, nil
	case *ecdsa.PublicKey:
		//nolint:staticcheck // Bytes panics where a coordinate is nil, and nothing else tells
		if p == nil || p.Curve == nil || p.X == nil || p.Y == nil {
			return nil, nil, part
		}
		i := slices.Index(curves, p.Curve)
		if i < 0 {
			return nil, nil, &Error{Check: checkKeyType, Got: "another curve", Want: "P-256, P-384 or P-521"}
		}
		point, _ := p.Bytes() // returns nothing for a point off its curve
		own, err := ecdsa.ParseUncompressedPublicKey(p.Curve, point)
		if err != nil {
			return nil, nil, &Error{Check: checkKey, Got: "a point off its curve", Err: err}
		}
		return own, curveAlgorithms[i : i+1], nil
	case ed25519.PublicKey:
		if len(p) != ed25519.PublicKeySize {
			return nil, nil, &Error{Check: checkKey, Got: bytesText(len(p)) + " of Ed25519 key", Want: bytesText(ed25519.PublicKeySize)}
		}
		return ed25519.PublicKey(bytes.Clone(p)), []Algorithm{EdDSA}, nil
	}
	return nil, nil, &Error{Check: checkKeyType, Got: fmt.Sprintf("%T", public), Want: "an RSA, ECDSA or Ed25519 public key"}
}

func checkRSA(modulus *big.Int, exponent int) error {
	bits := modulus.BitLen()
	switch {
	case bits < minRSABits || bits > maxRSABits:
		return &Error{Check: checkKey, Got: fmt.Sprintf("an RSA modulus of %d bits", bits), Want: fmt.Sprintf("%d to %d bits", minRSABits, maxRSABits)}
	case modulus.Sign() < 0 || modulus.Bit(0) == 0:
		return &Error{Check: checkKey, Got: "an RSA modulus that is even or negative", Want: "the product of two large primes"}
	case exponent < 3 || exponent > math.MaxInt32 || exponent%2 == 0:
		return &Error{Check: checkKey, Got: fmt.Sprintf("the RSA exponent %d", exponent), Want: "an odd one from 3 to 2147483647"}
	case roca.Vulnerable(modulus):
		return &Error{Check: checkKey, Got: "an RSA modulus with the fingerprint of CVE-2017-15361", Want: "one that cannot be factored"}
	}
	return nil
}

// The curves of ECDSA keys, and the one algorithm of each (RFC 7518, section 3.4).
var (
	curves          = []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}
	curveAlgorithms = []Algorithm{ES256, ES384, ES512}
)

// coordinateSize is the length in bytes of a coordinate, and of each half of a signature.
func coordinateSize(curve elliptic.Curve) int { return (curve.Params().BitSize + 7) / 8 }

// deriveKeyID derives the key ID of a key that checkPublic accepts, as Kubernetes does for its
// service-account keys: base64url of the SHA-256 digest of the key's PKIX form in DER
// (k8s.io/kubernetes, pkg/serviceaccount/jwt.go, keyIDFromPublicKey), 43 characters.
func deriveKeyID(public crypto.PublicKey) string {
	der, _ := x509.MarshalPKIXPublicKey(public) // each key that is accepted has this form
	digest := sha256.Sum256(der)
	return encoding.EncodeToString(digest[:])
}

// Algorithm is the name of a signature algorithm as it appears in the header member alg (RFC
// 7518, section 3.1; RFC 8037, section 3.1). The zero value is no algorithm.
type Algorithm string

// The algorithms. A token in compact form is signed by one of the first ten. hs256 is only for
// the detached signatures of discovery: a [Key] never has it, since anyone who can verify with
// it can sign.
const (
	RS256 Algorithm = "RS256" // RSASSA-PKCS1-v1_5 with SHA-256
	RS384 Algorithm = "RS384" // RSASSA-PKCS1-v1_5 with SHA-384
	RS512 Algorithm = "RS512" // RSASSA-PKCS1-v1_5 with SHA-512
	PS256 Algorithm = "PS256" // RSASSA-PSS with SHA-256, MGF1 with SHA-256, salt of 32 bytes
	PS384 Algorithm = "PS384" // RSASSA-PSS with SHA-384, MGF1 with SHA-384, salt of 48 bytes
	PS512 Algorithm = "PS512" // RSASSA-PSS with SHA-512, MGF1 with SHA-512, salt of 64 bytes
	ES256 Algorithm = "ES256" // ECDSA on P-256 with SHA-256
	ES384 Algorithm = "ES384" // ECDSA on P-384 with SHA-384
	ES512 Algorithm = "ES512" // ECDSA on P-521 with SHA-512
	EdDSA Algorithm = "EdDSA" // Ed25519, over the message itself
	hs256 Algorithm = "HS256" // HMAC with SHA-256
)

// asymmetricAlgorithms are those with which this package verifies tokens.
var asymmetricAlgorithms = []Algorithm{RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA}

// asymmetric returns the algorithm with that name, or "" if this package verifies no tokens
// with it. The result shares no memory with name.
func asymmetric(name string) Algorithm {
	if i := slices.Index(asymmetricAlgorithms, Algorithm(name)); i >= 0 {
		return asymmetricAlgorithms[i]
	}
	return ""
}

// digest appends the digest of data by the hash function of the algorithm, and returns both.
// EdDSA signs the message itself: data and 0.
func (a Algorithm) digest(b, data []byte) ([]byte, crypto.Hash) {
	switch a {
	case RS256, PS256, ES256:
		sum := sha256.Sum256(data)
		return append(b, sum[:]...), crypto.SHA256
	case RS384, PS384, ES384:
		sum := sha512.Sum384(data)
		return append(b, sum[:]...), crypto.SHA384
	case RS512, PS512, ES512:
		sum := sha512.Sum512(data)
		return append(b, sum[:]...), crypto.SHA512
	}
	return data, 0
}

// Verify checks the signature of a parsed token. The header must name the key's own
// algorithm, and its key ID or none.
//
// The errors are "form" for a zero token, "key" for a zero key,
// [CheckAlgorithm], [CheckKeyID], "jws-signature-size" and "jws-signature".
func (k *Key) Verify(token *Token) error {
	t := token.read()
	switch {
	case k.missing():
		return &Error{Check: checkKey, Got: "no key"}
	case t.algorithm == "":
		return &Error{Check: checkForm, Got: "no token"}
	case t.algorithm != k.algorithm:
		return &Error{Check: CheckAlgorithm, Got: string(t.algorithm), Want: string(k.algorithm)}
	case t.keyID != "" && t.keyID != k.keyID:
		return &Error{Check: CheckKeyID, Got: t.keyID, Want: k.keyID}
	}
	return k.verify(t.signed, t.signature)
}

// verify checks a signature over the bytes of header and payload.
func (k *Key) verify(signed, signature []byte) error {
	want := k.signatureSize()
	if len(signature) != want {
		return &Error{Check: checkSignatureSize, Got: bytesText(len(signature)), Want: bytesText(want)}
	}
	ok := false
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		hashed, hash := k.algorithm.digest(nil, signed)
		if k.algorithm.pss() {
			ok = rsa.VerifyPSS(public, hash, hashed, signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}) == nil
		} else {
			ok = rsa.VerifyPKCS1v15(public, hash, hashed, signature) == nil
		}
	case *ecdsa.PublicKey:
		var sum [sha512.Size]byte
		hashed, _ := k.algorithm.digest(sum[:0], signed)
		half := len(signature) / 2
		r, s := new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
		ok = ecdsa.Verify(public, hashed, r, s)
	case ed25519.PublicKey:
		ok = ed25519.Verify(public, signed, signature)
	}
	if !ok {
		return &Error{Check: checkSignature, Got: "a signature over other bytes or with another key", Want: "that of " + k.keyID}
	}
	return nil
}

// pss reports whether the algorithm of an RSA key is RSASSA-PSS.
func (a Algorithm) pss() bool { return a == PS256 || a == PS384 || a == PS512 }

// signatureSize is the length in bytes of the key's signatures (RFC 7518, sections 3.3
// to 3.5; RFC 8037, section 3.1).
func (k *Key) signatureSize() int {
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		return public.Size()
	case *ecdsa.PublicKey:
		return 2 * coordinateSize(public.Curve)
	}
	return ed25519.SignatureSize
}
