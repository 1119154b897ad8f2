package tpm

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmsocket"
	"github.com/nodeattest/nodeattest/refusal"
)

// OpenTPM opens the TPM at path: on Linux a device file, /dev/tpmrm0 as a rule, which
// shares the TPM with other programs where /dev/tpm0 takes it alone; everywhere a Unix
// socket that takes one command in each connection, such as swtpm's. For the TPM of
// Windows there is go-tpm's package transport/windowstpm.
//
// An error of opening wraps that of the file system; a path at which no TPM can be is
// [refusal.CheckConfig]. A socket is connected to at each command, and not before. A
// response has at most 4096 bytes, more is an error, and over a socket it comes within two
// minutes: the making of a large RSA key may take one of them. A command that runs cannot
// be interrupted.
//
// The caller closes the TPM, after everything that uses it. Where it has several users,
// they all go through one [tpmkey.Share].
func OpenTPM(path string) (transport.TPMCloser, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("tpm: open: %w", err)
	}
	switch {
	case info.Mode()&fs.ModeSocket != 0:
		return transport.FromReadWriteCloser(&tpmsocket.Socket{Path: path, Limit: tpmsocket.CommandLimit}), nil
	case info.Mode()&fs.ModeCharDevice != 0:
		device, err := openDevice(path)
		if err != nil {
			return nil, fmt.Errorf("tpm: open: %w", err)
		}
		return device, nil
	}
	return nil, refusal.Config("path", path+", a file of mode "+info.Mode().String(), "the device file or the Unix socket of a TPM")
}
