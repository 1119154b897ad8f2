package jws

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"math/big"
	"testing"
)

// oneKey is the cheapest key set.
type oneKey []*Key

func (k oneKey) Keys(context.Context, string) ([]*Key, error) { return k, nil }

var benchSecret = []byte("0123456789abcdef")

// BenchmarkDetached compares with one base64url encoding and one HMAC of 2 KiB.
func BenchmarkDetached(b *testing.B) {
	payload := bytes.Repeat([]byte("a"), 2048)
	signature, err := signDetached(payload, "abcdef", benchSecret)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			encoded := make([]byte, base64.RawURLEncoding.EncodedLen(len(payload)))
			base64.RawURLEncoding.Encode(encoded, payload)
			mac := hmac.New(sha256.New, benchSecret)
			mac.Write(encoded)
			mac.Sum(nil)
		}
	})
	b.Run("Sign", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := signDetached(payload, "abcdef", benchSecret); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Verify", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := verifyDetached(signature, payload, "abcdef", benchSecret); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("SignOfEncoded", func(b *testing.B) {
		d, err := NewDetached(payload)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := d.Sign("abcdef", benchSecret); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// kubernetesPayload has the size of a bound token's claims.
const kubernetesPayload = `{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":1763733985,"iat":1763730378,"iss":"https://kubernetes.default.svc.cluster.local","jti":"5a1f3a0e-4e1c-4a7e-9d26-0a4c2a1f3b77","kubernetes.io":{"namespace":"default","node":{"name":"worker-1","uid":"0b1d3a7e-6f0c-44f5-a3b8-b7a0f4f1f1ad"},"pod":{"name":"web-6d4cf56db6-x2x7k","uid":"2f1c2b8e-2b8e-4c53-8f0b-6a3f3b8de3ac"},"serviceaccount":{"name":"default","uid":"93c5b6c2-1d0e-4a5c-9d7b-2d5a7f6d1c11"},"warnafter":1763733985},"nbf":1763730378,"sub":"system:serviceaccount:default:default"}`

// BenchmarkVerify compares with the raw check of the same signatures.
func BenchmarkVerify(b *testing.B) {
	for _, algorithm := range []Algorithm{ES256, RS256, PS256, EdDSA} {
		f := forgers()[algorithm]
		token := f.token(b, `{"alg":"`+string(algorithm)+`","kid":"k"}`, kubernetesPayload)
		b.Run(string(algorithm)+"/Raw", func(b *testing.B) {
			raw := rawCheck(b, f, token)
			b.ReportAllocs()
			for b.Loop() {
				if !raw() {
					b.Fatal()
				}
			}
		})
		b.Run(string(algorithm)+"/Verify", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := VerifySignature(context.Background(), token, oneKey{f.key}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// rawCheck is the standard library's work for the signature of a token and nothing
// else: one digest and one public-key operation.
func rawCheck(t testing.TB, f *forger, token string) func() bool {
	t.Helper()
	parsed, err := Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	signed, signature := parsed.read().signed, parsed.read().signature
	switch public := f.key.public.(type) {
	case *ecdsa.PublicKey:
		half := len(signature) / 2
		r, s := new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
		return func() bool {
			digest := sha256.Sum256(signed)
			return ecdsa.Verify(public, digest[:], r, s)
		}
	case *rsa.PublicKey:
		hash := hashes[f.algorithm]
		return func() bool {
			var digest []byte
			if hash.Size() == sha256.Size {
				sum := sha256.Sum256(signed)
				digest = sum[:]
			} else {
				sum := sha512.Sum512(signed)
				digest = sum[:]
			}
			if f.algorithm[0] == 'P' {
				return rsa.VerifyPSS(public, hash, digest, signature, nil) == nil
			}
			return rsa.VerifyPKCS1v15(public, hash, digest, signature) == nil
		}
	case ed25519.PublicKey:
		return func() bool { return ed25519.Verify(public, signed, signature) }
	}
	t.Fatalf("no raw check for %s", f.algorithm)
	return nil
}

func BenchmarkParse(b *testing.B) {
	f := forgers()[ES256]
	token := f.token(b, `{"alg":"ES256","kid":"k"}`, kubernetesPayload)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(token); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAllocations bounds this package's allocations in addition to the standard library's.
func TestAllocations(t *testing.T) {
	payload := bytes.Repeat([]byte("a"), 2048)
	bare := testing.AllocsPerRun(100, func() {
		mac := hmac.New(sha256.New, benchSecret)
		mac.Write(payload)
		mac.Sum(nil)
	})
	signature, err := signDetached(payload, "abcdef", benchSecret)
	if err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(){
		"SignDetached":   func() { _, _ = signDetached(payload, "abcdef", benchSecret) },
		"VerifyDetached": func() { _ = verifyDetached(signature, payload, "abcdef", benchSecret) },
	} {
		// The payload in base64url and what holds it, the signature, and its other form.
		if got := testing.AllocsPerRun(100, run) - bare; got > 4 {
			t.Errorf("%s: %v allocations in addition to the HMAC", name, got)
		}
	}
	for _, algorithm := range []Algorithm{RS256, RS512, PS256, ES256, EdDSA} {
		f := forgers()[algorithm]
		token := f.token(t, `{"alg":"`+string(algorithm)+`","kid":"k"}`, kubernetesPayload)
		raw := rawCheck(t, f, token)
		bare := testing.AllocsPerRun(100, func() { _ = raw() })
		keys := oneKey{f.key}
		got := testing.AllocsPerRun(100, func() { _, _ = VerifySignature(context.Background(), token, keys) }) - bare
		// The token as bytes, its decoded segments, its key ID, Token and the two that keep its
		// content out of sight, Signed, and for ECDSA the two numbers of the signature.
		want := 7.0
		if algorithm == ES256 {
			want += 2
		}
		if got > want {
			t.Errorf("%s: %v allocations in addition to the signature's", algorithm, got)
		}
	}
}
