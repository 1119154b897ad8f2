package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"math/big"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
)

// rsaKey is the key for that label, with the exponent 65537 and two primes.
func rsaKey(bits int, label string) *rsa.PrivateKey {
	e := big.NewInt(65537)
	return keyOf(prime(bits/2, label+" p", e), prime(bits/2, label+" q", e))
}

func keyOf(p, q *big.Int) *rsa.PrivateKey {
	e, one := big.NewInt(65537), big.NewInt(1)
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

// flawedKey is an RSA key of 2048 bits as Infineon's RSALib made them (CVE-2017-15361): each prime is
// k·M + 65537^a mod M, where M is the product of the first 126 primes.
func flawedKey(label string) *rsa.PrivateKey {
	one, m := big.NewInt(1), big.NewInt(1)
	for n, count := int64(2), 0; count < 126; n++ {
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			m.Mul(m, p)
			count++
		}
	}
	room := new(big.Int).Div(new(big.Int).Lsh(one, 1024), m)
	tries := 0
	prime := func() *big.Int {
		for {
			tries++
			a := new(big.Int).SetBytes(forge.Derive(fmt.Sprint(label, " a ", tries), 128))
			k := new(big.Int).SetBytes(forge.Derive(fmt.Sprint(label, " k ", tries), 16))
			k.Sub(room, k.Mod(k, new(big.Int).Rsh(room, 2))) // so that the two highest bits are set
			p := k.Mul(k, m)
			if p.Add(p, a.Exp(big.NewInt(65537), a, m)); p.BitLen() == 1024 && p.ProbablyPrime(20) {
				return p
			}
		}
	}
	return keyOf(prime(), prime())
}
