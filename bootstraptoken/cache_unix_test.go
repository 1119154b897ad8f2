//go:build unix

package bootstraptoken

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestCacheFileOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cluster.json")
	if err := (&Cache{Info: info("https://a", newTestCA(t, "one"))}).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || stat.Mode() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", stat.Mode(), err)
	}
	for mode, refused := range map[fs.FileMode]bool{0o600: false, 0o400: false, 0o644: false, 0o620: true, 0o602: true, 0o666: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadCacheFile(path); errors.Is(err, checkCache) != refused || !refused && err != nil {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCacheFile(link); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link: %v", err)
	}
	if _, err := ReadCacheFile(fifo); !errors.Is(err, checkCache) {
		t.Errorf("a FIFO: %v", err)
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	if err := os.Chown(path, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCacheFile(path); !errors.Is(err, checkCache) {
		t.Errorf("another user's: %v", err)
	}
}
