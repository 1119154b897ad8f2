package jws

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// resigned parses a good token and puts another signature into it.
func resigned(t testing.TB, f *forger, signature []byte) error {
	t.Helper()
	good := f.good(t)
	signed := good[:strings.LastIndexByte(good, '.')]
	return f.verifies(signed + "." + b64(string(signature)))
}

func TestKeyVerify(t *testing.T) {
	for algorithm, f := range forgers() {
		token, err := Parse(f.good(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.key.Verify(token); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
		// Every other algorithm's key refuses it, also with the same public key.
		for other, g := range forgers() {
			if other != algorithm {
				refusedFor(t, string(other)+" for "+string(algorithm), g.key.Verify(token), CheckAlgorithm)
			}
		}
		refusedFor(t, string(algorithm)+" of a stranger", strangers()[algorithm].key.Verify(token), checkSignature)
		named, err := NewKey(f.signer.Public(), KeyOptions{KeyID: "K", Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		refusedFor(t, string(algorithm)+" of another ID", named.Verify(token), CheckKeyID)
		refusedFor(t, "zero key", new(Key).Verify(token), checkKey)
		refusedFor(t, "nil key", (*Key)(nil).Verify(token), checkKey)
		refusedFor(t, "zero token", f.key.Verify(new(Token)), checkForm)
		refusedFor(t, "nil token", f.key.Verify(nil), checkForm)
	}
}

// Each byte of a signature counts, and its length.
func TestSignatureBytes(t *testing.T) {
	for algorithm, f := range forgers() {
		good := f.good(t)
		signed := good[:strings.LastIndexByte(good, '.')]
		signature := f.raw(t, signed)
		for _, at := range []int{0, len(signature) / 2, len(signature) - 1} {
			changed := append([]byte(nil), signature...)
			changed[at] ^= 1
			refusedFor(t, string(algorithm)+" changed", f.verifies(signed+"."+b64(string(changed))), checkSignature)
		}
		for name, other := range map[string][]byte{
			"shorter":      signature[:len(signature)-1],
			"longer":       append(append([]byte(nil), signature...), 0),
			"zero before":  append([]byte{0}, signature...),
			"half":         signature[:len(signature)/2],
			"twice":        append(append([]byte(nil), signature...), signature...),
			"no signature": nil,
		} {
			refusedFor(t, string(algorithm)+" "+name, f.verifies(signed+"."+b64(string(other))), checkSignatureSize)
		}
		refusedFor(t, string(algorithm)+" zeros", f.verifies(signed+"."+b64(strings.Repeat("\x00", len(signature)))), checkSignature)
		refusedFor(t, string(algorithm)+" ones", f.verifies(signed+"."+b64(strings.Repeat("\xff", len(signature)))), checkSignature)
	}
}

// The salt of RSASSA-PSS is as long as its hash.
func TestPSSSalt(t *testing.T) {
	for _, algorithm := range []Algorithm{PS256, PS384, PS512} {
		f := forgers()[algorithm]
		good := f.good(t)
		signed := good[:strings.LastIndexByte(good, '.')]
		for _, salt := range []int{rsa.PSSSaltLengthAuto, 1, 20, hashes[algorithm].Size() - 1, hashes[algorithm].Size() + 1} {
			refusedFor(t, string(algorithm), f.verifies(signed+"."+b64(string(f.rawWith(t, signed, salt)))), checkSignature)
		}
		if err := f.verifies(signed + "." + b64(string(f.rawWith(t, signed, hashes[algorithm].Size())))); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
}

// The DER form of ECDSA signatures, and r and s out of range, are refused.
func TestECDSAHalves(t *testing.T) {
	for algorithm, curve := range map[Algorithm]elliptic.Curve{ES256: elliptic.P256(), ES384: elliptic.P384(), ES512: elliptic.P521()} {
		f := forgers()[algorithm]
		good := f.good(t)
		signed := good[:strings.LastIndexByte(good, '.')]
		signature := f.raw(t, signed)
		refusedFor(t, string(algorithm)+" in DER", f.verifies(signed+"."+b64(string(inDER(t, signature)))), checkSignatureSize)
		n, size := curve.Params().N, len(signature)/2
		for _, half := range [][]byte{make([]byte, size), n.FillBytes(make([]byte, size)), new(big.Int).Add(n, big.NewInt(1)).FillBytes(make([]byte, size))} {
			refusedFor(t, string(algorithm)+" r", resigned(t, f, append(append([]byte(nil), half...), signature[size:]...)), checkSignature)
			refusedFor(t, string(algorithm)+" s", resigned(t, f, append(append([]byte(nil), signature[:size]...), half...)), checkSignature)
		}
		// The other of the two good values of s.
		s := new(big.Int).SetBytes(signature[size:])
		high := s.Sub(n, s).FillBytes(make([]byte, size))
		if err := f.verifies(signed + "." + b64(string(signature[:size])+string(high))); err != nil {
			t.Errorf("%s: n - s: %v", algorithm, err)
		}
	}
}

// inDER is the DER form of an ECDSA signature whose halves are r and s (RFC 3279, section
// 2.2.3).
func inDER(t testing.TB, signature []byte) []byte {
	t.Helper()
	half := len(signature) / 2
	der, err := asn1.Marshal(struct{ R, S *big.Int }{new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])})
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// FuzzSignature: a naive verifier accepts each accepted signature.
func FuzzSignature(f *testing.F) {
	testkit.BeginFuzz(f)
	es := forgers()[ES256]
	good := es.good(f)
	signed := good[:strings.LastIndexByte(good, '.')]
	f.Add(es.raw(f, signed))
	f.Add(make([]byte, 64))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, signature []byte) {
		err := es.key.verify([]byte(signed), signature)
		naive := false
		if len(signature) == 64 {
			r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
			digest := sha256.Sum256([]byte(signed))
			naive = ecdsa.Verify(es.key.public.(*ecdsa.PublicKey), digest[:], r, s)
		}
		if (err == nil) != naive {
			t.Fatalf("%x: %v", signature, err)
		}
		if err != nil && !errors.Is(err, checkSignature) && !errors.Is(err, checkSignatureSize) {
			t.Fatal(err)
		}
	})
}
