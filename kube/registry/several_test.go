package registry_test

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// TestSeveral has the registry of a record's scope find and bind the record, whichever comes first.
func TestSeveral(t *testing.T) {
	rack := membership.Scope{Cluster: "cluster-1", Provider: "rack", Road: attest.RoadDocument}
	for _, mine := range []int{0, 1} {
		store := objectstore.New()
		all := registry.Several{newRegistryOver(t, store, at), newScopedRegistry(t, rack, store, at)}
		record, err := all[mine].Reserve(t.Context(), claim("node-1", "1", "uid-1"), at().Add(time.Minute))
		if err == nil {
			_, err = all.Bind(t.Context(), record, at().Add(time.Hour), nil)
		}
		if err == nil {
			record, err = all.LookupMachineUID(t.Context(), "uid-1")
		}
		if err != nil || record.State != membership.StateBound {
			t.Fatalf("got %+v, %v", record, err)
		}
	}
	if record, err := (registry.Several{}).Lookup(t.Context(), "node-1"); record != nil || err == nil {
		t.Errorf("of no registries: %+v, %v", record, err)
	}
}
