package apiserver

import (
	"context"
	"testing"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

// A measured way of checking one token, and its allocations beyond
// jws.VerifySignature.
type measured struct {
	name  string
	most  float64
	check func(context.Context) error
}

// measuredWays are first the check of the signature by itself, then the validations of both
// packages, with getters in memory.
func measuredWays(t testing.TB, algorithm jws.Algorithm) []measured {
	t.Helper()
	w := newWorld(t)
	if algorithm == jws.RS256 {
		w.useSigner(t, newSigner(t, newRSA(t)))
	}
	objects := &claims.MemoryObjects{}
	objects.Put("serviceaccounts", *w.objects.account)
	objects.Put("pods", *w.objects.pod)
	objects.Put("nodes", *w.objects.node)
	asServer, asUser := w.kubernetesConfig(), w.strictConfig()
	asServer.Objects, asUser.Objects = objects, objects
	machine := &claims.RegisteredMachine{Identity: "ek:sha256:aa", ProviderID: "gce://p/z/a", UID: "machine-uid"}
	asUser.Node.FindMachine = func(context.Context, string) (*claims.RegisteredMachine, error) { return machine, nil }
	kubernetes, strict, token := w.kubernetesWith(t, asServer), w.strictWith(t, asUser), w.token(t)
	node := &claims.AttestedNode{Name: "node-a", UID: "node-uid", ProviderID: "gce://p/z/a", Machine: "ek:sha256:aa", MachineUID: "machine-uid"}
	return []measured{
		{"signature", 0, func(ctx context.Context) error { _, err := jws.VerifySignature(ctx, token, w.keys); return err }},
		{"kubernetes", 21, func(ctx context.Context) error { _, err := kubernetes.Validate(ctx, token); return err }},
		{"strict", 22, func(ctx context.Context) error { _, err := strict.Validate(ctx, token); return err }},
		{"node", 23, func(ctx context.Context) error { _, _, err := strict.ValidateOnNode(ctx, token, node); return err }},
	}
}

// BenchmarkValidate has whole validations (parsing, signature, claims, getters in memory) next to
// the check of the signature by itself. Module test/interop has the bare public-key operation.
func BenchmarkValidate(b *testing.B) {
	for _, algorithm := range []jws.Algorithm{jws.ES256, jws.RS256} {
		for _, way := range measuredWays(b, algorithm) {
			b.Run(string(algorithm)+"/"+way.name, func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := way.check(b.Context()); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// TestValidateAllocations: the allocations of a validation beyond parsing the token and
// checking its signature. Most of it is the claims' strings.
func TestValidateAllocations(t *testing.T) {
	for _, algorithm := range []jws.Algorithm{jws.ES256, jws.RS256} {
		var base float64 // the first way's, of the signature alone
		for i, way := range measuredWays(t, algorithm) {
			n := testing.AllocsPerRun(50, func() {
				if err := way.check(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
			if i == 0 {
				base = n
			}
			if n-base > way.most {
				t.Errorf("%s %s: %v allocations beyond jws.VerifySignature's %v, want at most %v", algorithm, way.name, n-base, base, way.most)
			}
		}
	}
}
