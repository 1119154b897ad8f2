package safefile

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// RemoveStale removes a Unix socket on which no process listens, so that another process can listen at its
// path. Without a file there it returns nil. A socket of a process that listens and a file of another kind are refused with
// the check.
func RemoveStale(check refusal.Check, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return check.Refuse(path+" of mode "+info.Mode().String(), "a socket, or no file")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return check.Refuse("a process that listens on "+path, "a socket on which none does")
	}
	return os.Remove(path)
}
