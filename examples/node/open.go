package main

import (
	"os"

	"github.com/google/go-tpm/tpm2/transport"
)

// openTPM opens a device, such as /dev/tpmrm0.
func openTPM(path string) (transport.TPMCloser, error) {
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return transport.FromReadWriteCloser(device), nil
}
