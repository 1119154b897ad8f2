package registry_test

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

func newRegistry(t testing.TB, store *objectstore.Store, now func() time.Time) *registry.Registry {
	t.Helper()
	r := testkit.Must(registry.New(membership.Scope{Cluster: "cluster-1"}, store, store, registry.Options{Now: now}))
	return r
}

// TestConformance runs the registry over a store in memory, through four handles. The test
// of module test/kube does the same against a real API server.
func TestConformance(t *testing.T) {
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []membership.Registry {
		store := objectstore.New()
		var handles []membership.Registry
		for range 4 {
			handles = append(handles, newRegistry(t, store, now))
		}
		return handles
	})
}
