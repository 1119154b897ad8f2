//go:build unix

package bootstraptoken

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Only a regular file is read.
func TestTypesOfCacheFiles(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCacheFile(fifo); !strings.Contains(err.Error(), "got a file of mode p") {
		t.Errorf("a FIFO: %v", err)
	}
	if _, err := ReadCacheFile("/dev/null"); !strings.Contains(err.Error(), "got a file of mode Dc") {
		t.Errorf("a device: %v", err)
	}
}
