package kubelet

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestReadConfigurationWaits: a FIFO instead of a file is refused, and not waited for.
func TestReadConfigurationWaits(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.conf")
	testkit.MustDo(syscall.Mkfifo(fifo, 0o600))
	_, file := ReadConfiguration(fifo, "")
	_, dir := ReadConfiguration("", filepath.Dir(fifo))
	_, flags := ReadFlags(fifo)
	for _, err := range []error{file, dir, flags} {
		if !errors.Is(err, CheckFile) {
			t.Errorf("got %v", err)
		}
	}
}
