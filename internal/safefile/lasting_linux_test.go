package safefile_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/safefile"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
)

// TestLasting: a file system that a restart empties is refused, for a directory, for one in it that is missing, and
// for a file; a disk is taken, behind an overlay and a mount, too.
func TestLasting(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	dir := mounttest.Disk(t)
	write := func(path string) string {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, in := range mounttest.InMemory(t, dir) {
		for _, path := range []string{in, filepath.Join(in, "a", "b"), write(filepath.Join(in, "file"))} {
			if err := safefile.CheckLasting(path); !errors.Is(err, safefile.CheckFile) || errors.Is(err, safefile.ErrUnknown) {
				t.Errorf("%s: %s: got %v, want %v", name, path, err, safefile.CheckFile)
			}
		}
	}
	overlay := filepath.Join(dir, "over-disk")
	bound := filepath.Join(dir, "tmpfs", "bound-disk")
	if err := os.Mkdir(bound, 0o700); err != nil {
		t.Fatal(err)
	}
	mounttest.Bind(t, overlay, bound)
	for _, path := range []string{dir, overlay, filepath.Join(overlay, "a", "b"), write(filepath.Join(overlay, "file")), bound} {
		if err := safefile.CheckLasting(path); err != nil {
			t.Error(err)
		}
	}

	// A file in memory that is mounted on one of a disk.
	file := write(filepath.Join(dir, "file"))
	mounttest.Bind(t, filepath.Join(dir, "tmpfs", "file"), file)
	if err := safefile.CheckLasting(file); !errors.Is(err, safefile.CheckFile) {
		t.Errorf("a mounted file: got %v, want %v", err, safefile.CheckFile)
	}

	// A link to a directory in memory.
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "tmpfs"), link); err != nil {
		t.Fatal(err)
	}
	if err := safefile.CheckLasting(filepath.Join(link, "file")); !errors.Is(err, safefile.CheckFile) {
		t.Errorf("a link: got %v, want %v", err, safefile.CheckFile)
	}
}

// TestLastingUnknown: an overlay whose upper directory is not there, or another one has its name, is
// neither in memory nor on a disk.
func TestLastingUnknown(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	dir := mounttest.Disk(t)
	upper := mounttest.Mount(t, dir, "hidden", "tmpfs", "size=64k")
	overlay := mounttest.Overlay(t, dir, "overlay", upper)
	if err := syscall.Unmount(upper, syscall.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := safefile.CheckLasting(overlay); !errors.Is(err, safefile.CheckFile) || !errors.Is(err, safefile.ErrUnknown) {
			t.Errorf("got %v, want %v and %v", err, safefile.CheckFile, safefile.ErrUnknown)
		}
		if err := os.MkdirAll(filepath.Join(upper, "overlay, upper"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// The overlay itself, under the name of its upper directory.
	if err := os.Mkdir(filepath.Join(overlay, "overlay, upper"), 0o700); err != nil {
		t.Fatal(err)
	}
	mounttest.Bind(t, overlay, upper)
	if err := safefile.CheckLasting(overlay); !errors.Is(err, safefile.ErrUnknown) {
		t.Errorf("an overlay on itself: got %v, want %v", err, safefile.ErrUnknown)
	}
}

// TestLastingBlockDevice: a disk whose blocks are in memory.
func TestLastingBlockDevice(t *testing.T) {
	if !mounttest.Enter(t) {
		return
	}
	dir := mounttest.Disk(t)
	for name, in := range map[string]string{"disk": dir, "tmpfs": mounttest.Mount(t, dir, "tmpfs", "tmpfs", "")} {
		image, at := filepath.Join(in, "image"), filepath.Join(dir, "on-"+name)
		script := `truncate -s 2M "$1" && mke2fs -q -F "$1" && mkdir "$2" && mount -o loop "$1" "$2"`
		if out, err := exec.Command("sh", "-c", script, "sh", image, at).CombinedOutput(); err != nil {
			t.Skipf("no loop device: %v: %s", err, out)
		}
		err := safefile.CheckLasting(at)
		if in != dir { // the image is hidden by the mount over it
			mounttest.Bind(t, at, in)
			if err := safefile.CheckLasting(at); !errors.Is(err, safefile.ErrUnknown) {
				t.Errorf("an image that is out of sight: got %v, want %v", err, safefile.ErrUnknown)
			}
			_ = syscall.Unmount(in, syscall.MNT_DETACH)
		}
		_ = syscall.Unmount(at, 0)
		if memory := name == "tmpfs"; memory != errors.Is(err, safefile.CheckFile) || !memory && err != nil {
			t.Errorf("an image on a %s: %v", name, err)
		}
		if memory := name == "tmpfs"; memory && !strings.Contains(err.Error(), image) {
			t.Errorf("the error does not name %s: %v", image, err)
		}
	}
}
