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

var rsaKeys = struct {
	sync.Mutex
	keys map[int]*rsa.PrivateKey
}{keys: map[int]*rsa.PrivateKey{}}

// NewRSA is always the same key of one size: they take long to make.
func NewRSA(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	rsaKeys.Lock()
	defer rsaKeys.Unlock()
	if k := rsaKeys.keys[bits]; k != nil {
		return k
	}
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	rsaKeys.keys[bits] = k
	return k
}

// NewP256 makes a key on P-256.
func NewP256(t testing.TB) *ecdsa.PrivateKey { return NewECDSA(t, elliptic.P256()) }

// Keys that are made once, where they are first needed: RSA keys take time.
var (
	RSA2048  = sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) })
	RSA2048b = sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(2048) })
	RSA1024  = sync.OnceValue(func() *rsa.PrivateKey { return mustRSA(1024) })
	P256     = sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) })
	P256b    = sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P256()) })
	P384     = sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P384()) })
	P521     = sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P521()) })
	P224     = sync.OnceValue(func() *ecdsa.PrivateKey { return mustECDSA(elliptic.P224()) })
)

func mustRSA(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

func mustECDSA(c elliptic.Curve) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
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
