//lint:file-ignore SA1019 the coordinates are set one by one to make keys that are not valid

package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
)

func TestCanonicalSPKIIsWhatX509Writes(t *testing.T) {
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]crypto.PublicKey{
		"RSA-2048":       keyRSA2().Public(),
		"RSA of 3 bits":  &rsa.PublicKey{N: big.NewInt(5), E: 3},
		"RSA of 7 bits":  &rsa.PublicKey{N: big.NewInt(127), E: 1 << 30},
		"RSA of 8 bits":  &rsa.PublicKey{N: big.NewInt(255), E: 128},
		"RSA-4096":       &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 4095), E: 65537},
		"Ed25519":        ed,
		"P-256":          keyP256().Public(),
		"P-384":          keyP384().Public(),
		"P-224":          newECDSA(elliptic.P224()).Public(),
		"P-521":          newECDSA(elliptic.P521()).Public(),
		"P-256, short X": shortCoordinate(t),
	}
	for name, key := range keys {
		want, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		got, err := CanonicalSPKI(key)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %x, %v, want %x", name, got, err, want)
		}
		hash, err := SPKIHash(key)
		if err != nil || hash != sha256.Sum256(want) {
			t.Errorf("%s: hash %x, %v", name, hash, err)
		}
		if !IsCanonicalSPKI(want) {
			t.Errorf("%s: not canonical", name)
		}
	}
}

// FuzzIsCanonicalSPKI compares the answer about an encoding with the encoding of the key
// that crypto/x509 reads out of it.
func FuzzIsCanonicalSPKI(f *testing.F) {
	for _, key := range []crypto.PublicKey{&rsa.PublicKey{N: big.NewInt(255), E: 65537}, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 3},
		keyP256().Public(), keyP384().Public(), newECDSA(elliptic.P224()).Public(), newECDSA(elliptic.P521()).Public(), ed25519.PublicKey(make([]byte, 32))} {
		spki, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(spki)
		f.Add(append(spki, 0))
		f.Add(bytes.Replace(spki, spkiRSA, []byte("\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"), 1))
	}
	f.Fuzz(func(t *testing.T, spki []byte) {
		key, err := x509.ParsePKIXPublicKey(spki)
		if err != nil {
			return
		}
		canonical, err := CanonicalSPKI(key)
		if want := err == nil && bytes.Equal(canonical, spki); IsCanonicalSPKI(spki) != want {
			t.Errorf("%x: canonical %t, want %t: %T is %x, %v", spki, !want, want, key, canonical, err)
		}
	})
}

// The lengths in the encoding of an RSA key have one byte, two or three.
func TestCanonicalSPKIOfEachLength(t *testing.T) {
	for _, n := range []int{1, 110, 127, 128, 220, 254, 255, 256, 257, 512, 1 << 10, 1<<15 - 2, 1<<15 - 1, 1 << 15, 1<<16 + 1} {
		for bits := 8*n - 9; bits <= 8*n+1; bits++ {
			if bits < 2 {
				continue
			}
			low := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
			for _, modulus := range []*big.Int{low, new(big.Int).Sub(new(big.Int).Lsh(low, 1), big.NewInt(1))} {
				for _, exponent := range []int{3, 65537, 65539} {
					key := &rsa.PublicKey{N: modulus, E: exponent}
					want, err := x509.MarshalPKIXPublicKey(key)
					if err != nil {
						t.Fatal(err)
					}
					got, err := CanonicalSPKI(key)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bits, exponent %d: %v, or another encoding", bits, exponent, err)
					}
				}
			}
		}
	}
}

// shortCoordinate finds a point whose X has a leading zero byte.
func shortCoordinate(t *testing.T) *ecdsa.PublicKey {
	t.Helper()
	curve := elliptic.P256()
	for x := int64(1); x < 1000; x++ {
		compressed := append([]byte{2}, big.NewInt(x).FillBytes(make([]byte, 32))...)
		if px, py := elliptic.UnmarshalCompressed(curve, compressed); px != nil {
			return &ecdsa.PublicKey{Curve: curve, X: px, Y: py} //nolint:staticcheck // nothing else makes it from its coordinates
		}
	}
	t.Fatal("no point")
	return nil
}

func TestCanonicalSPKIRefuses(t *testing.T) {
	good := shortCoordinate(t)
	var noRSA *rsa.PublicKey
	var noECDSA *ecdsa.PublicKey
	for name, key := range map[string]crypto.PublicKey{
		"nil":                   nil,
		"nil RSA":               noRSA,
		"nil ECDSA":             noECDSA,
		"empty RSA":             &rsa.PublicKey{},
		"RSA modulus negative":  &rsa.PublicKey{N: big.NewInt(-5), E: 3},
		"RSA modulus zero":      &rsa.PublicKey{N: big.NewInt(0), E: 3},
		"RSA exponent zero":     &rsa.PublicKey{N: big.NewInt(5)},
		"RSA exponent negative": &rsa.PublicKey{N: big.NewInt(5), E: -3},
		"RSA by value":          rsa.PublicKey{N: big.NewInt(5), E: 3},
		"empty ECDSA":           &ecdsa.PublicKey{},
		"ECDSA without a point": &ecdsa.PublicKey{Curve: elliptic.P256()},
		"point off the curve":   &ecdsa.PublicKey{Curve: elliptic.P256(), X: good.X, Y: new(big.Int).Add(good.Y, big.NewInt(1))}, //nolint:staticcheck // what is refused
		"point on another":      &ecdsa.PublicKey{Curve: elliptic.P384(), X: good.X, Y: good.Y},                                  //nolint:staticcheck // what is refused
		"another curve":         &ecdsa.PublicKey{Curve: &elliptic.CurveParams{Name: "P-256"}, X: good.X, Y: good.Y},             //nolint:staticcheck // what is refused
		"Ed25519 too short":     ed25519.PublicKey(make([]byte, 31)),
		"empty Ed25519":         ed25519.PublicKey(nil),
		"a private key":         keyP256(),
	} {
		t.Run(name, func(t *testing.T) {
			if spki, err := CanonicalSPKI(key); !errors.Is(err, checkUnsupportedKey) {
				t.Errorf("%x, %v", spki, err)
			}
			if hash, err := SPKIHash(key); !errors.Is(err, checkUnsupportedKey) || hash != [32]byte{} {
				t.Errorf("hash %x, %v", hash, err)
			}
		})
	}
}

// TestCanonicalSPKIOfRealCertificates shows that the keys of real TPMs have the one
// encoding, or none of Go's types.
func TestCanonicalSPKIOfRealCertificates(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "ek-certs/leaf/*.der"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no certificates: %v", err)
	}
	read := 0
	for _, file := range files {
		der, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil || certificate.PublicKey == nil {
			continue
		}
		spki, err := CanonicalSPKI(certificate.PublicKey)
		if err != nil || !bytes.Equal(spki, certificate.RawSubjectPublicKeyInfo) {
			t.Errorf("%s: %x, %v, want %x", filepath.Base(file), spki, err, certificate.RawSubjectPublicKeyInfo)
		}
		read++
	}
	if read < 20 {
		t.Errorf("only %d certificates were read", read)
	}
}
