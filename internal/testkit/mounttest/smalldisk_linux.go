package mounttest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// SmallDisk is a small file system, for tests of full and read-only disks.
type SmallDisk struct {
	t    testing.TB
	dir  string
	size int
}

// NewSmallDisk mounts one of size bytes: only after [Enter].
func NewSmallDisk(t testing.TB, size int) *SmallDisk {
	t.Helper()
	return &SmallDisk{t: t, dir: Mount(t, t.TempDir(), "disk", "tmpfs", "size="+strconv.Itoa(size)), size: size}
}

// Path returns the path of a file on the disk.
func (d *SmallDisk) Path(name string) string { return filepath.Join(d.dir, name) }

// Fill writes a file until the disk is full.
func (d *SmallDisk) Fill() {
	d.t.Helper()
	if err := os.WriteFile(d.Path("fill"), make([]byte, 2*d.size), 0o600); !errors.Is(err, syscall.ENOSPC) {
		d.t.Fatalf("the disk does not fill: %v", err)
	}
}

// Empty removes the file that Fill wrote.
func (d *SmallDisk) Empty() {
	d.t.Helper()
	testkit.NoError(d.t, os.Remove(d.Path("fill")))
}

// ReadOnly makes the disk read-only, or writable again.
func (d *SmallDisk) ReadOnly(on bool) {
	d.t.Helper()
	flags := uintptr(syscall.MS_REMOUNT | syscall.MS_BIND)
	if on {
		flags |= syscall.MS_RDONLY
	}
	testkit.NoError(d.t, syscall.Mount("", d.dir, "", flags, ""))
}
