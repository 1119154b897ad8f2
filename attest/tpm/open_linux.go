package tpm

import (
	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
)

// openDevice opens a device file of the kernel's driver.
func openDevice(path string) (transport.TPMCloser, error) { return linuxtpm.Open(path) }
