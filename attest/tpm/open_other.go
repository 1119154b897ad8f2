//go:build !linux

package tpm

import (
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/refusal"
)

// openDevice always refuses: only Linux has device files for TPMs.
func openDevice(path string) (transport.TPMCloser, error) {
	return nil, refusal.Config("path", path+", a device file", "a Unix socket: only Linux has device files of TPMs")
}
