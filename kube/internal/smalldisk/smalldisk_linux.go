// Package smalldisk makes file systems for tests of full and read-only disks.
package smalldisk

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Disk is a tmpfs that is mounted nowhere: the kernel removes it with its descriptor.
type Disk struct {
	t    testing.TB
	fd   int
	size int
}

// New makes a Disk of size bytes. It skips the test if the user may not mount file systems.
func New(t testing.TB, size int) *Disk {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skip("making a file system takes root")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "size", strconv.Itoa(size)), unix.FsconfigCreate(fs)); err != nil {
		t.Fatal(err)
	}
	d := &Disk{t: t, size: size}
	if d.fd, err = unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(d.fd) })
	return d
}

// Path is the path of a file on it.
func (d *Disk) Path(name string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(d.fd), name)
}

// Fill fills the disk; Empty undoes it.
func (d *Disk) Fill() {
	d.t.Helper()
	if err := os.WriteFile(d.Path("fill"), make([]byte, 2*d.size), 0o600); !errors.Is(err, unix.ENOSPC) {
		d.t.Fatalf("the disk does not fill: %v", err)
	}
}

// Empty undoes Fill.
func (d *Disk) Empty() {
	d.t.Helper()
	if err := os.Remove(d.Path("fill")); err != nil {
		d.t.Fatal(err)
	}
}

// ReadOnly makes the disk read-only, or writable again.
func (d *Disk) ReadOnly(on bool) {
	d.t.Helper()
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if !on {
		attr = &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	}
	if err := unix.MountSetattr(d.fd, "", unix.AT_EMPTY_PATH, attr); err != nil {
		d.t.Fatal(err)
	}
}
