package claims

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/jws"
)

// useKey gives the world another signing key.
func (w *world) useKey(t testing.TB, private crypto.Signer) {
	t.Helper()
	var err error
	if w.signer, err = jws.NewSigner(private, jws.SignerOptions{}); err != nil {
		t.Fatal(err)
	}
	if w.keys, err = jws.NewStaticKeySet(w.signer.Key()); err != nil {
		t.Fatal(err)
	}
}

// worldOf returns a world with memory's getters and a key of the algorithm.
func worldOf(t testing.TB, algorithm jws.Algorithm) (*world, *MemoryObjects) {
	t.Helper()
	w := newWorld(t)
	if algorithm == jws.RS256 {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		w.useKey(t, key)
	}
	objects := &MemoryObjects{}
	objects.PutServiceAccount(*w.objects.account)
	objects.PutPod(*w.objects.pod)
	objects.PutNode(*w.objects.node)
	return w, objects
}

// rawCheck is the one public-key operation over one token, hash included.
func rawCheck(t testing.TB, key *jws.Key, token string) func() bool {
	t.Helper()
	last := strings.LastIndexByte(token, '.')
	input := []byte(token[:last])
	signature, err := base64.RawURLEncoding.DecodeString(token[last+1:])
	if err != nil {
		t.Fatal(err)
	}
	switch public := key.Public().(type) {
	case *ecdsa.PublicKey:
		r, s := new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])
		return func() bool {
			digest := sha256.Sum256(input)
			return ecdsa.Verify(public, digest[:], r, s)
		}
	case *rsa.PublicKey:
		return func() bool {
			digest := sha256.Sum256(input)
			return rsa.VerifyPKCS1v15(public, crypto.SHA256, digest[:], signature) == nil
		}
	}
	t.Fatalf("a key of type %T", key.Public())
	return nil
}

// BenchmarkValidate has whole validations (parsing, signature, claims, getters in memory,
// the user) beside the signature check alone.
func BenchmarkValidate(b *testing.B) {
	for _, algorithm := range []jws.Algorithm{jws.ES256, jws.RS256} {
		w, objects := worldOf(b, algorithm)
		token := w.token(b)
		raw := rawCheck(b, w.signer.Key(), token)
		config := w.strictConfig()
		config.Objects = objects
		strict := w.strictWith(b, config)
		node := attested()
		name := string(algorithm)
		bench := func(name string, f func() bool) {
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if !f() {
							b.Error("refused")
						}
					}
				})
			})
		}
		bench(name+"/raw", raw)
		bench(name+"/strict", func() bool {
			_, err := strict.Validate(b.Context(), token)
			return err == nil
		})
		bench(name+"/node", func() bool {
			_, _, err := strict.ValidateOnNode(b.Context(), token, node)
			return err == nil
		})
	}
}

// TestValidateAllocations: what a validation allocates beyond parsing the token and
// checking its signature. Most of it is the claims' strings.
func TestValidateAllocations(t *testing.T) {
	for _, algorithm := range []jws.Algorithm{jws.ES256, jws.RS256} {
		w, objects := worldOf(t, algorithm)
		token := w.token(t)
		config := w.strictConfig()
		config.Objects = objects
		strict := w.strictWith(t, config)
		node := attested()
		ctx := t.Context()
		count := func(run func() error) float64 {
			return testing.AllocsPerRun(50, func() {
				if err := run(); err != nil {
					t.Fatal(err)
				}
			})
		}
		base := count(func() error { _, err := jws.VerifySignature(ctx, token, w.keys); return err })
		for _, tt := range []struct {
			name string
			most float64
			run  func() error
		}{
			{"strict", 22, func() error { _, err := strict.Validate(ctx, token); return err }},
			{"node", 23, func() error { _, _, err := strict.ValidateOnNode(ctx, token, node); return err }},
		} {
			if n := count(tt.run) - base; n > tt.most {
				t.Errorf("%s %s: %v allocations beyond jws.VerifySignature's %v, want at most %v", algorithm, tt.name, n, base, tt.most)
			}
		}
	}
}
