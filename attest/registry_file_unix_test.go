//go:build unix

package attest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestFileRegistryModes(t *testing.T) {
	path, f := newRegistryFile(t)
	for _, mode := range []fs.FileMode{0o620, 0o602, 0o666, 0o777} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFileRegistry(path, crashScope, nil); !errors.Is(err, ErrRegistryFile) {
			t.Errorf("mode %v: got %v", mode, err)
		}
		if _, err := f.Lookup(context.Background(), "a"); !errors.Is(err, ErrRegistryFile) {
			t.Errorf("mode %v, while it is in use: got %v", mode, err)
		}
	}
	for _, mode := range []fs.FileMode{0o600, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Lookup(context.Background(), "a"); err != nil {
			t.Errorf("mode %v: got %v", mode, err)
		}
	}
}

func TestFileRegistryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	path, _ := newRegistryFile(t)
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFileRegistry(path, crashScope, nil); !errors.Is(err, ErrRegistryFile) {
		t.Errorf("got %v", err)
	}
}

func TestFileRegistryThatIsNoFile(t *testing.T) {
	path, _ := newRegistryFile(t)
	dir := filepath.Dir(path)
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(path, link), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, fifo, dir} {
		if _, err := OpenFileRegistry(p, crashScope, nil); !errors.Is(err, ErrRegistryFile) {
			t.Errorf("%s: got %v", filepath.Base(p), err)
		}
	}
	// A symbolic link in place of the lock or the temporary file is not followed.
	target := filepath.Join(dir, "target")
	if err := errors.Join(os.WriteFile(target, []byte("x"), 0o600), os.Symlink(target, path+".tmp")); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFileRegistry(path, crashScope, crashClock)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Reserve(context.Background(), RegistryClaim{NodeName: "a", Machine: "t:1"}, crashNow.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if content, err := os.ReadFile(target); err != nil || string(content) != "x" {
		t.Errorf("written through a symbolic link: %q, %v", content, err)
	}
}

// Who waits for the lock of another process gives up with its context, and gets
// it when the other one is done. A lock file that was removed keeps nobody out.
func TestFileRegistryLock(t *testing.T) {
	path, f := newRegistryFile(t)
	unlock, err := newOSRegistryDisk(path).lock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	claim := RegistryClaim{NodeName: "a", Machine: "t:1"}
	if _, err := f.Reserve(ctx, claim, crashNow.Add(time.Minute)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the context's error", err)
	}
	if r, err := f.Lookup(context.Background(), "a"); err != nil || r != nil { // readers do not wait
		t.Errorf("got %+v, %v", r, err)
	}
	time.AfterFunc(20*time.Millisecond, unlock)
	if _, err := f.Reserve(context.Background(), claim, crashNow.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reserve(context.Background(), claim, crashNow.Add(time.Minute)); err != nil {
		t.Error(err)
	}
}
