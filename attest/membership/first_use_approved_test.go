package membership

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
)

// Where newcomers need an approval, nobody is first: a machine is admitted once it is
// recorded, under the name that it was recorded for, and no other one is.
func TestFirstUseApprovedOnly(t *testing.T) {
	f := newFirstUse(t, Scope{})
	f.c.ApprovedOnly = true
	machine, other := attest.Identity("test:1"), attest.Identity("test:2")
	f.refuse(t, answerOf(t, "node-1", machine), CheckRegistryApproval)

	claim := Claim{NodeName: "node-1", Machine: machine, MachineUID: "uid-1"}
	reserved, err := f.registry.Reserve(t.Context(), claim, f.at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	f.refuse(t, answerOf(t, "node-1", machine), CheckRegistryApproval) // half an approval
	if _, err := f.registry.Bind(t.Context(), reserved); err != nil {
		t.Fatal(err)
	}
	if a := f.admit(t, answerOf(t, "node-1", machine)); a.ProviderID != "test://1" {
		t.Errorf("got %+v", a)
	}
	f.refuse(t, answerOf(t, "node-1", other), CheckRegistryName)
	f.refuse(t, answerOf(t, "node-2", machine), CheckRegistryMachine)
	f.refuse(t, answerOf(t, "node-2", other), CheckRegistryUID) // one Machine is one node
}
