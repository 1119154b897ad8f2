//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package attest

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes the lock on f if nobody holds it.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, err
		}
	}
}
