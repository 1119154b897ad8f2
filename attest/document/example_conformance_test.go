package document_test

import (
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
)

// TestExampleKind: the kind of the package's example admits its machines, and no attack.
func TestExampleKind(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := document.NewKind(document.KindConfig{Provider: "cloud", Identities: []attest.Grammar{{Kind: "cloud"}}, ValueSize: 32, Platform: cloudPlatform{public}})
	if err != nil {
		t.Fatal(err)
	}
	of := func(key ed25519.PrivateKey) func(string, time.Time) document.Source {
		return func(machine string, _ time.Time) document.Source { return cloudMachine{machine, key} }
	}
	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: &attesttest.Documents{Kind: kind, Source: of(private), Attacker: of(foreign), Undated: true}})
	verifier, err := attest.NewVerifier(world.Config)
	if err != nil {
		t.Fatal(err)
	}
	attesttest.Run(t, verifier, world)
}
