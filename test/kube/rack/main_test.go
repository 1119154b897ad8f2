package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/document"
)

// foreignSlot is a slot of a rack with another key.
type foreignSlot struct {
	slot
	key ed25519.PrivateKey
}

func (s foreignSlot) Document(_ context.Context, value []byte) ([]byte, error) {
	b := &board{Name: s.board, Value: value}
	b.Signature = ed25519.Sign(s.key, b.signed(s.version))
	return json.Marshal(b)
}

// TestConformance: the kind admits its boards, and no attack.
func TestConformance(t *testing.T) {
	_, foreign, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := open(func(into any) error { return json.Unmarshal([]byte(`{"versions":[1,2]}`), into) })
	if err != nil {
		t.Fatal(err)
	}
	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: &attesttest.Documents{Kind: kind, Undated: true,
		Source:   func(machine string, _ time.Time) document.Source { return slot{machine, 2} },
		Attacker: func(machine string, _ time.Time) document.Source { return foreignSlot{slot{machine, 2}, foreign} }}})
	verifier, err := attest.NewVerifier(world.Config)
	if err != nil {
		t.Fatal(err)
	}
	attesttest.Run(t, verifier, world)
}
