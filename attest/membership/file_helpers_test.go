package membership

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

var fileScope = Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}

// newRegistryFile makes a registry's file in a directory of its own.
func newRegistryFile(t testing.TB) string {
	t.Helper()
	dir := mounttest.Disk(t)
	testkit.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "registry")
	testkit.NoError(t, CreateFileRegistry(t.Context(), path, fileScope))
	return path
}

// openFile opens a registry and closes it with the test.
func openFile(t testing.TB, path string, now func() time.Time) *FileRegistry {
	t.Helper()
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{Now: now}))
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func fileClaim(node string) Claim {
	return Claim{NodeName: node, Machine: attest.Identity("test:" + node), MachineUID: "uid-" + node, ProviderID: "test://" + node}
}

// joinFile reserves and binds, and records a certificate of an hour.
func joinFile(t testing.TB, r Registry, c Claim, now time.Time) *Record {
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

// fillFile writes a registry's file with that many bound records.
func fillFile(t testing.TB, path string, size int) {
	t.Helper()
	end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	held := map[string]*Record{}
	for i := range size {
		r := &Record{Claim: fileClaim(nodeOf(i)), State: StateBound, LastEnd: end, Version: strconv.Itoa(i + 1)}
		held[r.NodeName] = r
	}
	all := testkit.Must(index(held, uint64(size)))
	f := testkit.Must(os.OpenFile(path, os.O_RDWR|os.O_TRUNC, 0o600))
	testkit.NoError(t, writeJournal(f, fileScope, all))
	testkit.NoError(t, f.Close())
}

// nodeOf spreads the names, as names of machines are spread.
func nodeOf(i int) string {
	return "node-" + strconv.FormatUint(uint64(i)*0x9e3779b97f4a7c15, 36)
}
