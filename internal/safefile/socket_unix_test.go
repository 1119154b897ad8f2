//go:build unix

package safefile

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestRemoveStale: a socket that no process listens on is removed; a file, a link to a socket and a socket with a listener
// stay and are refused with the caller's check.
func TestRemoveStale(t *testing.T) {
	const check refusal.Check = "socket"
	path := filepath.Join(t.TempDir(), "s")
	testkit.NoError(t, RemoveStale(check, path))
	l := testkit.Must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))
	l.SetUnlinkOnClose(false)
	refused := func(path string) {
		t.Helper()
		if err := RemoveStale(check, path); !errors.Is(err, check) {
			t.Errorf("%s: got %v", path, err)
		}
		testkit.Must(os.Lstat(path))
	}
	refused(path)
	testkit.NoError(t, l.Close())
	testkit.NoError(t, os.Symlink(path, path+"2"))
	refused(path + "2")
	testkit.NoError(t, os.WriteFile(path+"3", nil, 0o600))
	refused(path + "3")
	testkit.NoError(t, RemoveStale(check, path))
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
