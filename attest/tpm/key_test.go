package tpm

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"
)

var p256 = elliptic.P256()

func TestSoftwareKeyRefuses(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mixed := *newECDSA(t, p256)
	mixed.PublicKey = newECDSA(t, p256).PublicKey
	good := newRSA(t, 2048)
	exponent3 := *good
	exponent3.E = 3
	for name, key := range map[string]crypto.Signer{
		"nothing":             nil,
		"nil ECDSA":           (*ecdsa.PrivateKey)(nil),
		"empty ECDSA":         &ecdsa.PrivateKey{},
		"nil RSA":             (*rsa.PrivateKey)(nil),
		"empty RSA":           &rsa.PrivateKey{},
		"Ed25519":             ed,
		"P-224":               newECDSA(t, elliptic.P224()),
		"two keys' halves":    &mixed,
		"RSA exponent 3":      &exponent3,
		"RSA without primes":  &rsa.PrivateKey{PublicKey: good.PublicKey, D: good.D},
		"RSA of other primes": &rsa.PrivateKey{PublicKey: good.PublicKey, D: good.D, Primes: []*big.Int{good.Primes[0], good.Primes[0]}},
		"three primes":        threePrimes(t),
		"uneven primes":       rsaOfPrimes(t, 1000, 1048),
		"RSA-1024":            rsaOfPrimes(t, 512, 512),
	} {
		if k, err := SoftwareKey(key); err == nil || k != nil {
			t.Errorf("%s: got %v, %v", name, k, err)
		}
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

// Coordinates and scalars that begin with zero bytes are loaded at full width.
func TestSoftwareKeyWithLeadingZeros(t *testing.T) {
	tpm := newTPM(t)
	keys := map[string]*ecdsa.PrivateKey{}
	for len(keys) < 2 {
		k := newECDSA(t, p256)
		point, err := k.PublicKey.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if point[1] == 0 {
			keys["X"] = k
		}
		if point[33] == 0 {
			keys["Y"] = k
		}
	}
	small, err := ecdsa.ParseRawPrivateKey(p256, padded(make([]byte, 31), 32)[:31:31])
	if err == nil {
		t.Fatalf("a short scalar made the key %v", small.PublicKey)
	}
	scalar := make([]byte, 32)
	scalar[31] = 5
	if keys["scalar"], err = ecdsa.ParseRawPrivateKey(p256, scalar); err != nil {
		t.Fatal(err)
	}
	for name, k := range keys {
		key := mustSoftwareKey(t, k)
		c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkStatement(t, c, k.Public(), []byte{1}, false)
		if p, err := ParsePublic(c.public); err != nil || len(p.X) != 32 || len(p.Y) != 32 {
			t.Errorf("%s: public area %x, %v", name, c.public, err)
		}
	}
}

func TestSoftwareKeyAttributes(t *testing.T) {
	tpm := newTPM(t)
	for _, key := range []Key{mustSoftwareKey(t, newECDSA(t, p256)), mustSoftwareKey(t, newRSA(t, 2048))} {
		c, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, key, []byte{1})
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParsePublic(c.public)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.Attributes.String(), "userWithAuth|noDA|sign"; got != want {
			t.Errorf("attributes: got %s, want %s", got, want)
		}
		if p.Exponent != 0 || p.Scheme.String() != "NULL" {
			t.Errorf("got exponent %d and scheme %v, want 0 and NULL", p.Exponent, p.Scheme)
		}
	}
}

// The simulator has no such key. The TPM's refusal comes through, and the key
// works elsewhere.
func TestSoftwareKeyThatTheTPMDoesNotHave(t *testing.T) {
	tpm := newTPM(t)
	for _, priv := range []crypto.Signer{newRSA(t, 3072)} {
		_, err := certifyWith(t, tpm, AKSource{Template: AKTemplateECDSAP256()}, mustSoftwareKey(t, priv), []byte{1})
		if err == nil || !strings.Contains(err.Error(), "TPM2_LoadExternal") {
			t.Errorf("got %v, want a refusal of TPM2_LoadExternal", err)
		}
		checkNothingLoaded(t, tpm)
	}
}
