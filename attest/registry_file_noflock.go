//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package attest

import (
	"errors"
	"os"
)

// tryLock: without flock two processes could write at once.
func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
