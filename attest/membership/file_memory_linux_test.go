package membership

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestUncoveredLineWrittenAgain: a line that the head does not cover is written once more, as its sync may
// have failed and no later one would write it.
func TestUncoveredLineWrittenAgain(t *testing.T) {
	path := newRegistryFile(t)
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
	covered := head(r.store.journal.size)
	c := fileClaim("late")
	c.ProviderID = strings.Repeat("p", 900)
	joinFile(t, r, c, time.Now())
	testkit.NoError(t, r.Close())
	written := func() (n int) {
		var read int
		_, err := fmt.Sscanf(string(testkit.Must(os.ReadFile("/proc/self/io"))), "rchar: %d\nwchar: %d", &read, &n)
		testkit.NoError(t, err)
		return n
	}
	f := testkit.Must(os.OpenFile(path, os.O_WRONLY, 0))
	testkit.Must(f.WriteAt(covered, 0))
	testkit.NoError(t, f.Close())
	before := written()
	openFile(t, path, nil)
	if n := written() - before; n < 2*900 {
		t.Errorf("opening wrote %d bytes", n)
	}
}
