//go:build unix

package boltregistry

import (
	"os"
	"syscall"
)

// unlock releases bbolt's lock on a file before it is closed: a remaining memory mapping would keep the
// lock.
func unlock(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
