package registry_test

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// TestSeveral: an operator's change to a record reaches the registry of its scope, whichever
// comes first.
func TestSeveral(t *testing.T) {
	rack := membership.Scope{Cluster: "cluster-1", Provider: "rack", Road: attest.RoadDocument}
	for _, mine := range []int{0, 1} {
		store := objectstore.New()
		all := registry.Several{newRegistryOver(t, store, at), newScopedRegistry(t, rack, store, at)}
		record, err := all[mine].Reserve(t.Context(), claim("node-1", "1", "uid-1"), at().Add(time.Minute))
		if err == nil {
			record, err = all.Bind(t.Context(), record, at().Add(time.Hour), nil)
		}
		if err == nil {
			record, err = all.Rebind(t.Context(), record, "test:2")
		}
		if err == nil {
			record, err = all.Adopt(t.Context(), record, "uid-2")
		}
		if err != nil || record.Machine != "test:2" || record.MachineUID != "uid-2" {
			t.Fatalf("got %+v, %v", record, err)
		}
		for uid, want := range map[string]bool{"uid-1": false, "uid-2": true} {
			if released, err := all.Release(t.Context(), "node-1", uid); released != want || err != nil {
				t.Errorf("%s: released %t, %v", uid, released, err)
			}
		}
	}
	if released, err := (registry.Several{}).Release(t.Context(), "node-1", "uid-1"); released || err == nil {
		t.Errorf("none: released %t, %v", released, err)
	}
}
