package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"math/big"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// rsaKey is the key for that label, with the exponent 65537 and two primes.
func rsaKey(bits int, label string) *rsa.PrivateKey {
	e := big.NewInt(65537)
	p, q := prime(bits/2, label+" p", e), prime(bits/2, label+" q", e)
	one := big.NewInt(1)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	key := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: 65537},
		D:         new(big.Int).ModInverse(e, phi),
		Primes:    []*big.Int{p, q},
	}
	forge.Check(key.Validate())
	key.Precompute()
	return key
}

// prime is the first prime p after the bytes for that label, with its two top bits set, such
// that e does not divide p - 1.
func prime(bits int, label string, e *big.Int) *big.Int {
	raw := forge.Derive(label, bits/8)
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

// rawKey is the key inside a forge.Repeatable.
func rawKey(s crypto.Signer) crypto.Signer {
	if r, ok := s.(forge.Repeatable); ok {
		return r.Signer
	}
	return s
}

// pkcs8 is the private key in DER.
func pkcs8(key crypto.Signer) []byte { return forge.Must(x509.MarshalPKCS8PrivateKey(rawKey(key))) }
