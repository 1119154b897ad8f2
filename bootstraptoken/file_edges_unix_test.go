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

// infoOf is a file of mode 0600 with what the system says of its owner.
type infoOf struct {
	fs.FileInfo
	sys any
}

func (infoOf) Mode() fs.FileMode { return 0o600 }
func (i infoOf) Sys() any        { return i.sys }

func TestOwnersOfCacheFiles(t *testing.T) {
	me := uint32(os.Geteuid())
	for name, c := range map[string]struct {
		sys  any
		good bool
	}{
		"nobody": {nil, false}, "this user": {&syscall.Stat_t{Uid: me}, true}, "root": {&syscall.Stat_t{Uid: 0}, true},
		"the next user": {&syscall.Stat_t{Uid: me + 1}, false}, "the one after": {&syscall.Stat_t{Uid: me + 2}, false}, "the last": {&syscall.Stat_t{Uid: 1<<32 - 1}, false},
	} {
		if err := checkTrusted(infoOf{sys: c.sys}); c.good != (err == nil) || !c.good && !errors.Is(err, CheckCache) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := syncDirectory(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// What is no regular file is refused as that, and not read.
func TestTypesOfCacheFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCacheFile(fifo); gotOf(err) != "a file of the type p---------" {
		t.Errorf("a FIFO: %v", err)
	}
	if _, err := ReadCacheFile("/dev/null"); gotOf(err) != "a file of the type Dc---------" {
		t.Errorf("a device: %v", err)
	}
}

// gotOf is what a refusal stopped at.
func gotOf(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Got
}
