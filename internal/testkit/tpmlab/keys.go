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

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// NewECDSA makes a key.
func NewECDSA(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	testkit.NoError(t, err)
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
	return sync.OnceValue(func() *rsa.PrivateKey { return testkit.Must(rsa.GenerateKey(rand.Reader, bits)) })
}

func onCurve(c elliptic.Curve) func() *ecdsa.PrivateKey {
	return sync.OnceValue(func() *ecdsa.PrivateKey { return testkit.Must(ecdsa.GenerateKey(c, rand.Reader)) })
}

// Parsed parses a certificate that must be one.
func Parsed(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	testkit.NoError(t, err)
	return cert
}

// FlawedModulus returns 2048 bits with the fingerprint of CVE-2017-15361: the number is 1 modulo each
// of the first primes. Its factors are not known.
func FlawedModulus() *big.Int {
	m := big.NewInt(1)
	for n := range int64(168) {
		if p := big.NewInt(n); p.ProbablyPrime(0) {
			m.Mul(m, p)
		}
	}
	n := new(big.Int).Lsh(big.NewInt(1), 2047)
	n.Sub(n, new(big.Int).Mod(n, m))
	return n.Add(n, m.Add(m, big.NewInt(1)))
}
