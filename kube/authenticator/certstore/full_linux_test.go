package certstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk writes to a disk of a few KiB: the pair of before stays, and the next one is
// written when there is room.
func TestFullDisk(t *testing.T) {
	dir := smallDisk(t)
	s, err := Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	first, next := pair(t, "first"), pair(t, "next")
	if err := l.WritePair("client.pem", first); err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk does not fill: %v", err)
	}
	if err := l.WritePair("client.pem", next); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a write to a full disk: %v", err)
	}
	if got, err := s.ReadPair("client.pem"); err != nil || !bytes.Equal(got.Marshal(), first.Marshal()) {
		t.Errorf("the pair of before: %v", err)
	}
	if entries, err := os.ReadDir(s.dir); err != nil || len(entries) != 2 {
		t.Errorf("something is left over: %v, %v", entries, err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := l.WritePair("client.pem", next); err != nil {
		t.Errorf("a write where there is room: %v", err)
	}
	if got, err := s.ReadPair("client.pem"); err != nil || !bytes.Equal(got.Marshal(), next.Marshal()) {
		t.Errorf("the new pair: %v", err)
	}
}

// smallDisk is a tmpfs of 16 KiB that is mounted nowhere: it goes with its descriptor.
func smallDisk(t *testing.T) string {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.EPERM) {
		t.Skip("making a file system takes root")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := errors.Join(unix.FsconfigSetString(fs, "size", "16k"), unix.FsconfigCreate(fs)); err != nil {
		t.Fatal(err)
	}
	disk, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(disk) })
	return "/proc/self/fd/" + strconv.Itoa(disk)
}
