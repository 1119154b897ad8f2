//go:build unix

package boltregistry

import (
	"os"
	"syscall"
)

// unlock gives up bbolt's lock on a file that is to be closed: what is still mapped from the
// file would keep the lock.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
