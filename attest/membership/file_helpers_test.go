package boltregistry

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

var testScope = membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}

// newFile makes a registry's file in a directory of its own.
func newFile(t testing.TB) string {
	t.Helper()
	dir := mounttest.Disk(t)
	testkit.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "registry")
	testkit.NoError(t, Create(t.Context(), path, testScope))
	return path
}

// open opens a registry and closes it with the test.
func open(t testing.TB, path string, now func() time.Time) *Registry {
	t.Helper()
	r := testkit.Must(Open(t.Context(), path, testScope, membership.RegistryOptions{Now: now}))
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func claim(node string) membership.Claim {
	return membership.Claim{NodeName: node, Machine: attest.Identity("test:" + node), MachineUID: "uid-" + node, ProviderID: "test://" + node}
}

// join reserves and binds, and records a certificate of an hour.
func join(t testing.TB, r membership.Registry, c membership.Claim, now time.Time) *membership.Record {
	t.Helper()
	record, err := r.Reserve(t.Context(), c, now.Add(time.Minute))
	if err == nil {
		record, err = r.Bind(t.Context(), record, now.Add(time.Hour), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return record
}
