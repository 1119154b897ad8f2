package membership

import (
	"context"
	"errors"
	"testing"
	"time"
)

// ended looks up a reservation that has ended, as Lookups of one's own may.
type ended struct {
	Registry
	record *Record
}

func (e ended) Lookup(context.Context, string) (*Record, error) { return e.record, nil }

// TestEndedReservationAsksForNode: an ended reservation that a look-up returns is ignored: a name that has a
// Node stays taken.
func TestEndedReservationAsksForNode(t *testing.T) {
	for name, deadline := range map[string]time.Duration{"a minute ago": -time.Minute, "now": 0, "too far away": 2 * maxReservation} {
		t.Run(name, func(t *testing.T) {
			f := newFirstUse(t, Scope{})
			r := answerOf(t, "node-1", "gce:p/1")
			f.nodes["node-1"] = true
			claim := Claim{NodeName: "node-1", Machine: "gce:p/1", MachineUID: "uid-1", ProviderID: "test://1"}
			f.c.Registry = ended{f.registry, &Record{Claim: claim, State: StateReserved, Deadline: f.at.Add(deadline), Version: "1"}}
			if _, err := asked(t, f, r); !errors.Is(err, checkRegistryNode) {
				t.Errorf("got %v, want %v", err, checkRegistryNode)
			}
			delete(f.nodes, "node-1")
			f.admit(t, r)
		})
	}
}
