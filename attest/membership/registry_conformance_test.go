package membership_test

import (
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

func TestMemoryRegistry(t *testing.T) {
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []membership.Registry {
		m := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID}, membership.RegistryOptions{Now: now}))
		return []membership.Registry{m}
	})
}
