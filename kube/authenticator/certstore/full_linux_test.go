package certstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestFullDisk writes to a disk of a few KiB, in a mount namespace of another process: the
// pair of before stays, and the next one is written when there is room.
func TestFullDisk(t *testing.T) {
	cmd := child(t, "full", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("making a mount namespace takes root")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// fillDisk is the other process. It returns its exit code.
func fillDisk(dir string) int {
	t := new(testing.T)
	if err := errors.Join(
		syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("none", dir, "tmpfs", 0, "size=16k"),
	); err != nil {
		fmt.Println(err)
		return 1
	}
	s, err := Open(filepath.Join(dir, "store"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	l, err := s.Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	first, next := pair(t, "first"), pair(t, "next")
	fill := filepath.Join(dir, "fill")
	check := func(what string, ok bool, err error) {
		if !ok {
			fmt.Println(what, err)
			os.Exit(1)
		}
	}
	err = l.WritePair("client.pem", first)
	check("the first write", err == nil, err)
	err = os.WriteFile(fill, make([]byte, 64<<10), 0o600)
	check("the disk does not fill", errors.Is(err, syscall.ENOSPC), err)
	err = l.WritePair("client.pem", next)
	check("a write to a full disk", errors.Is(err, syscall.ENOSPC), err)
	got, err := s.ReadPair("client.pem")
	check("the pair of before", err == nil && bytes.Equal(got.Marshal(), first.Marshal()), err)
	entries, err := os.ReadDir(s.dir)
	check("something is left over", err == nil && len(entries) == 2, err)
	err = os.Remove(fill)
	check("the disk", err == nil, err)
	err = l.WritePair("client.pem", next)
	check("a write where there is room", err == nil, err)
	got, err = s.ReadPair("client.pem")
	check("the new pair", err == nil && bytes.Equal(got.Marshal(), next.Marshal()), err)
	return 0
}
