package tpmkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"testing"

	"github.com/nodeattest/nodeattest/internal/tpmlab"
)

var p256 = elliptic.P256()

func TestSoftwareKeyRefuses(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mixed := *tpmlab.NewECDSA(t, p256)
	mixed.PublicKey = tpmlab.NewECDSA(t, p256).PublicKey
	good := tpmlab.NewRSA(t, 2048)
	exponent3 := *good
	exponent3.E = 3
	for name, key := range map[string]crypto.Signer{
		"nothing":             nil,
		"nil ECDSA":           (*ecdsa.PrivateKey)(nil),
		"empty ECDSA":         &ecdsa.PrivateKey{},
		"nil RSA":             (*rsa.PrivateKey)(nil),
		"empty RSA":           &rsa.PrivateKey{},
		"Ed25519":             ed,
		"P-224":               tpmlab.NewECDSA(t, elliptic.P224()),
		"two keys' halves":    &mixed,
		"RSA exponent 3":      &exponent3,
		"RSA without primes":  &rsa.PrivateKey{PublicKey: good.PublicKey, D: good.D},
		"RSA of other primes": &rsa.PrivateKey{PublicKey: good.PublicKey, D: good.D, Primes: []*big.Int{good.Primes[0], good.Primes[0]}},
		"three primes":        threePrimes(t),
		"uneven primes":       rsaOfPrimes(t, 1000, 1048),
		"RSA-1024":            rsaOfPrimes(t, 512, 512),
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := SoftwareKey(key); err == nil || k != nil {
				t.Errorf("%s: got %v, %v", name, k, err)
			}
		})
	}
}

// rsaOfPrimes makes a key that crypto/rsa would not make.
func rsaOfPrimes(t testing.TB, bits ...int) *rsa.PrivateKey {
	t.Helper()
	want := 0
	for _, b := range bits {
		want += b
	}
	one, e := big.NewInt(1), big.NewInt(65537)
	for {
		k := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: big.NewInt(1), E: 65537}}
		phi := big.NewInt(1)
		for _, b := range bits {
			p, err := rand.Prime(rand.Reader, b)
			if err != nil {
				t.Fatal(err)
			}
			k.Primes = append(k.Primes, p)
			k.N.Mul(k.N, p)
			phi.Mul(phi, new(big.Int).Sub(p, one))
		}
		if k.D = new(big.Int).ModInverse(e, phi); k.D != nil && k.N.BitLen() == want {
			return k
		}
	}
}

func threePrimes(t testing.TB) *rsa.PrivateKey { return rsaOfPrimes(t, 683, 683, 682) }
