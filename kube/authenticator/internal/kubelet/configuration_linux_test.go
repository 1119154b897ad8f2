package kubelet

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReadConfigurationWaits: a FIFO instead of a file is refused, and not waited for.
func TestReadConfigurationWaits(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.conf")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	_, file := ReadConfiguration(fifo, "")
	_, dir := ReadConfiguration("", filepath.Dir(fifo))
	_, flags := ReadFlags(fifo)
	for _, err := range []error{file, dir, flags} {
		if !errors.Is(err, CheckFile) {
			t.Errorf("got %v", err)
		}
	}
}
