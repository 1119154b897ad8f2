// Package mounttest gives tests directories on file systems of every kind, in memory and on a disk.
package mounttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/internal/safefile"
)

// Disk returns a temporary directory that outlasts a restart of the machine. It is the usual one or,
// where that is in memory, one in the package's directory; with neither, the test is skipped.
func Disk(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	err := safefile.CheckLasting(dir)
	if err == nil {
		return dir
	}
	if dir, made := os.MkdirTemp(".", ".disk"); made == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if dir, made = filepath.Abs(dir); made == nil && safefile.CheckLasting(dir) == nil {
			return dir
		}
	}
	t.Skipf("set TMPDIR to a directory on a disk: %v", err)
	return ""
}
