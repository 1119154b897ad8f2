package forge

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"io"
	"math/big"
)

// Seed is what all keys and nonces follow from. Nothing made from it protects
// anything.
const Seed = "nodeattest test vectors"

// Derive gives bytes that follow from the seed and a label.
func Derive(label string, size int) []byte {
	return Must(hkdf.Key(sha256.New, []byte(Seed), nil, label, size))
}

// ECKey is the key of that label. It turns to the next candidate where the bytes are
// no scalar, or where fits, if given, does not like the key.
func ECKey(curve elliptic.Curve, label string, fits func(*ecdsa.PublicKey) bool) *ecdsa.PrivateKey {
	size := (curve.Params().BitSize + 7) / 8
	for n := 0; ; n++ {
		raw := Derive(fmt.Sprintf("%s %d", label, n), size)
		if curve == elliptic.P521() {
			raw[0] &= 1
		}
		key, err := ecdsa.ParseRawPrivateKey(curve, raw)
		if err == nil && (fits == nil || fits(&key.PublicKey)) {
			return key
		}
	}
}

// RSAKey is the key of that label, with the exponent 65537 and two primes.
func RSAKey(bits int, label string) *rsa.PrivateKey {
	e := big.NewInt(65537)
	p, q := prime(bits/2, label+" p", e), prime(bits/2, label+" q", e)
	one := big.NewInt(1)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	key := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537},
		D:         new(big.Int).ModInverse(e, phi),
		Primes:    []*big.Int{p, q},
	}
	Check(key.Validate())
	key.Precompute()
	return key
}

// prime is the first prime p behind the bytes of that label, its two top bits set,
// where e divides p - 1 in no way.
func prime(bits int, label string, e *big.Int) *big.Int {
	raw := Derive(label, bits/8)
	raw[0] |= 0xc0
	raw[len(raw)-1] |= 1
	p, one, two := new(big.Int).SetBytes(raw), big.NewInt(1), big.NewInt(2)
	for {
		less := new(big.Int).Sub(p, one)
		if p.ProbablyPrime(20) && new(big.Int).GCD(nil, nil, less, e).Cmp(one) == 0 {
			return p
		}
		p.Add(p, two)
	}
}

// Repeatable signs the same bytes the same way each time, as far as the scheme lets
// it: ECDSA by RFC 6979, RSASSA-PKCS1-v1_5 as always.
type Repeatable struct{ crypto.Signer }

// Sign ignores the source of randomness, but for RSASSA-PSS, which needs one.
func (r Repeatable) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if _, pss := opts.(*rsa.PSSOptions); pss {
		return r.Signer.Sign(rand.Reader, digest, opts)
	}
	return r.Signer.Sign(nil, digest, opts)
}
