package membership_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

var conformanceScope = membership.Scope{Cluster: attesttest.ClusterID}

func TestMemoryRegistry(t *testing.T) {
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []membership.Registry {
		m := testkit.Must(membership.NewMemoryRegistry(conformanceScope, membership.RegistryOptions{Now: now}))
		return []membership.Registry{m}
	})
}

func TestFileRegistry(t *testing.T) {
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []membership.Registry {
		dir := mounttest.Disk(t)
		testkit.NoError(t, os.Chmod(dir, 0o700))
		path := filepath.Join(dir, "registry")
		testkit.NoError(t, membership.CreateFileRegistry(t.Context(), path, conformanceScope))
		r := testkit.Must(membership.OpenFileRegistry(t.Context(), path, conformanceScope, membership.RegistryOptions{Now: now}))
		t.Cleanup(func() { testkit.NoError(t, r.Close()) })
		return []membership.Registry{r}
	})
}
