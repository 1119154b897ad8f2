package tpmlab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"math/big"
	"sync"
	"testing"
)

// NewECDSA makes a key.
func NewECDSA(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// NewP256 makes a key on P-256.
func NewP256(t testing.TB) *ecdsa.PrivateKey { return NewECDSA(t, elliptic.P256()) }

// Keys that are made once, where they are first needed: RSA keys take time.
var (
	RSA2048  = ofSize(2048)
	RSA2048b = ofSize(2048)
	RSA1024  = ofSize(1024)
	RSA3072  = ofSize(3072)
	P256     = onCurve(elliptic.P256())
	P256b    = onCurve(elliptic.P256())
	P384     = onCurve(elliptic.P384())
	P521     = onCurve(elliptic.P521())
	P224     = onCurve(elliptic.P224())
)

func ofSize(bits int) func() *rsa.PrivateKey {
	return sync.OnceValue(func() *rsa.PrivateKey { return Must(rsa.GenerateKey(rand.Reader, bits)) })
}

func onCurve(c elliptic.Curve) func() *ecdsa.PrivateKey {
	return sync.OnceValue(func() *ecdsa.PrivateKey { return Must(ecdsa.GenerateKey(c, rand.Reader)) })
}

// Parsed parses a certificate that must be one.
func Parsed(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// ROCAPrime makes a prime of the flawed form: k·M + 65537^a mod M, where M is the
// product of the first primes.
func ROCAPrime(t testing.TB, bits int) *big.Int {
	t.Helper()
	m := big.NewInt(1)
	for n, count := int64(2), 0; count < 39; n++ { // the 512-bit keys' M
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			m.Mul(m, p)
			count++
		}
	}
	for {
		a, err := rand.Int(rand.Reader, m)
		if err != nil {
			t.Fatal(err)
		}
		k, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits-m.BitLen())))
		if err != nil {
			t.Fatal(err)
		}
		p := new(big.Int).Exp(big.NewInt(65537), a, m)
		if p.Add(p, k.Mul(k, m)); p.BitLen() == bits && p.ProbablyPrime(10) {
			return p
		}
	}
}
