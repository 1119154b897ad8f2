//go:build !windows && (!unix || aix || (solaris && !illumos))

package safefile

import (
	"errors"
	"os"
)

// Lock locks no file on these systems.
func Lock(*os.File) error { return errors.ErrUnsupported }
