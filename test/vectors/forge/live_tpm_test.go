package forge

import (
	"fmt"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
)

// everyWorld has both roads, without and with TLS keys in the TPM and quotes.
var everyWorld = []worldOptions{
	{road: attest.RoadAK, requests: true},
	{road: attest.RoadAK, resident: true, quoted: true},
	{road: attest.RoadEK, requests: true},
	{road: attest.RoadEK, resident: true, quoted: true},
}

// TestLiveAttacks: the verifier of package attest admits honest machines, and no attack.
func TestLiveAttacks(t *testing.T) {
	for _, o := range everyWorld {
		t.Run(fmt.Sprintf("%v", o), func(t *testing.T) {
			w := newWorld(t, o)
			attesttest.Run(t, w.real(t), w.World)
		})
	}
}

// TestAttackNames: an attack has a name of its own, a class and a description.
func TestAttackNames(t *testing.T) {
	for _, o := range everyWorld {
		seen := map[string]bool{}
		for _, a := range newWorld(t, o).attacks() {
			if seen[a.Name] || a.Name == "" || a.Description == "" || a.Class == "" {
				t.Errorf("%+v", a)
			}
			seen[a.Name] = true
		}
		if len(seen) < 120 {
			t.Errorf("%v: %d attacks", o, len(seen))
		}
	}
}
