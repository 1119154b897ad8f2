package jws

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"testing"
)

// sets are the three kinds of key set, each with the forger's key of an algorithm.
func sets(t testing.TB, algorithm Algorithm) map[string]KeySet {
	t.Helper()
	f := forgers()[algorithm]
	static, err := NewStaticKeySet(f.key)
	if err != nil {
		t.Fatal(err)
	}
	remote, issuer, _ := newRemote(t, nil)
	issuer.serve(t, []*Key{f.key})
	if _, err := remote.Keys(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	rotating, err := NewRotatingSigner(
		newSigner(t, f.signer, SignerOptions{KeyID: "k", Algorithm: algorithm}),
		RotationConfig{Publish: testPublish, Retain: testRetain})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]KeySet{"Static": static, "Remote": remote, "Rotating": rotating}
}

// BenchmarkVerifyWith verifies the tokens of a Kubernetes size with each kind of key set.
// BenchmarkVerify has the raw check of the same signatures.
func BenchmarkVerifyWith(b *testing.B) {
	for _, algorithm := range []Algorithm{ES256, RS256} {
		f := forgers()[algorithm]
		token := f.token(b, `{"alg":"`+string(algorithm)+`","kid":"k"}`, kubernetesPayload)
		for name, set := range sets(b, algorithm) {
			b.Run(string(algorithm)+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := VerifySignature(context.Background(), token, set); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSign compares with the operations that it cannot do without: one signature,
// and its verification.
func BenchmarkSign(b *testing.B) {
	ctx, payload := context.Background(), []byte(kubernetesPayload)
	for _, algorithm := range []Algorithm{ES256, RS256} {
		f := forgers()[algorithm]
		b.Run(string(algorithm)+"/Raw", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				digest := sha256.Sum256(payload)
				signature, err := f.signer.Sign(rand.Reader, digest[:], hashes[algorithm])
				if err != nil {
					b.Fatal(err)
				}
				switch public := f.key.public.(type) {
				case *ecdsa.PublicKey:
					if !ecdsa.VerifyASN1(public, digest[:], signature) {
						b.Fatal()
					}
				case *rsa.PublicKey:
					if err := rsa.VerifyPKCS1v15(public, hashes[algorithm], digest[:], signature); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		s := newSigner(b, f.signer, SignerOptions{KeyID: "k"})
		b.Run(string(algorithm)+"/Sign", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				signature, err := s.Sign(ctx, payload)
				if err != nil {
					b.Fatal(err)
				}
				_ = signature.Token(payload)
			}
		})
	}
}

// TestKeySetAllocations bounds the allocations of a question to a key set.
func TestKeySetAllocations(t *testing.T) {
	most := map[string]float64{
		"Static": 0,
		"Remote": 0,
		// The published keys as they are now, and the one that was asked for.
		"Rotating": 2,
	}
	ctx := context.Background()
	for name, set := range sets(t, ES256) {
		for _, keyID := range []string{"k", "x"} {
			_, _ = set.Keys(ctx, keyID) // after which an unknown one is remembered
			got := testing.AllocsPerRun(100, func() {
				if _, err := set.Keys(ctx, keyID); err != nil {
					t.Fatal(err)
				}
			})
			if got > most[name] {
				t.Errorf("%s, %q: %v allocations, want at most %v", name, keyID, got, most[name])
			}
		}
	}
}
