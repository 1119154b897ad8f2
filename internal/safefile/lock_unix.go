//go:build unix && !aix && (!solaris || illumos)

package safefile

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks an open file, without waiting. The error is [ErrLocked] if it is locked already. The
// lock belongs to the open file: it ends when that is closed, or with the process.
func Lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}
