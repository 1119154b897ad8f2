package membership

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestInMemory: records that a restart of the machine would lose are not begun, nor is a copy of a
// registry opened there. A container's own file system is not known to be in memory.
func TestInMemory(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	path := newRegistryFile(t)
	good := testkit.Must(os.ReadFile(path))
	dir := mounttest.Disk(t)
	for name, in := range mounttest.InMemory(t, dir) {
		there := filepath.Join(in, "registry")
		if err := CreateFileRegistry(t.Context(), there, fileScope); !errors.Is(err, checkRegistryFile) {
			t.Errorf("%s: created: got %v, want %v", name, err, checkRegistryFile)
		}
		if _, err := os.Stat(there); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: there is a file: %v", name, err)
		}
		testkit.NoError(t, os.WriteFile(there, good, 0o600))
		if _, err := OpenFileRegistry(t.Context(), there, fileScope, RegistryOptions{}); !errors.Is(err, checkRegistryFile) {
			t.Errorf("%s: opened: got %v, want %v", name, err, checkRegistryFile)
		}
	}
	hidden := mounttest.Mount(t, dir, "hidden", "tmpfs", "")
	container := filepath.Join(mounttest.Overlay(t, dir, "container", hidden), "registry")
	testkit.NoError(t, syscall.Unmount(hidden, syscall.MNT_DETACH))
	for _, there := range []string{container, filepath.Join(dir, "over-disk", "registry")} {
		if err := CreateFileRegistry(t.Context(), there, fileScope); err != nil {
			t.Error(err)
		}
	}
}
