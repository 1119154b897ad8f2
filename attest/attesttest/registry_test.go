package attesttest_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
)

func TestMemoryRegistry(t *testing.T) {
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []attest.Registry {
		m, err := attest.NewMemoryRegistry(attest.RegistryScope{Road: attest.RoadAK}, now)
		if err != nil {
			t.Fatal(err)
		}
		return []attest.Registry{m}
	})
}

// Three handles on one file stand for three processes.
func TestFileRegistry(t *testing.T) {
	scope := attest.RegistryScope{Road: attest.RoadEK, EKAlgorithm: "P-256"}
	attesttest.RunRegistry(t, func(t testing.TB, now func() time.Time) []attest.Registry {
		path := filepath.Join(t.TempDir(), "registry")
		if err := attest.CreateFileRegistry(context.Background(), path, scope); err != nil {
			t.Fatal(err)
		}
		handles := make([]attest.Registry, 3)
		for i := range handles {
			f, err := attest.OpenFileRegistry(path, scope, now)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			handles[i] = f
		}
		return handles
	})
}
