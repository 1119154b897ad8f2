package tpm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/tpmsocket"
	"github.com/nodeattest/nodeattest/refusal"
)

// OpenTPM opens the TPM at path: on Linux a device file, usually /dev/tpmrm0, which shares
// the TPM with other programs, whereas /dev/tpm0 takes it exclusively; on any system a Unix
// socket that takes one command per connection, such as swtpm's. For the TPM on Windows there
// is go-tpm's package transport/windowstpm.
//
// An error in opening wraps that of the file system, with [refusal.ErrRetry] if another program
// has the device; a path that cannot be a TPM is
// [refusal.CheckConfig]. A socket is connected for each command, and not before. A response
// has at most 4096 bytes, and more is an error. Over a socket it must arrive within two
// minutes: creating a large RSA key may take one of them. A running command cannot be
// interrupted.
//
// The caller closes the TPM, after everything that uses it. If it has several users, they all
// go through one [tpmkey.Share].
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
			return nil, fmt.Errorf("tpm: open: %w", explainOpening(err))
		}
		return device, nil
	}
	return nil, refusal.Config("path", path+", a file of mode "+info.Mode().String(), "the device file or the Unix socket of a TPM")
}

func explainOpening(err error) error {
	if errors.Is(err, syscall.EBUSY) {
		return refusal.Retry(fmt.Errorf("%w: another program has opened the TPM exclusively; let both open /dev/tpmrm0, which the kernel shares",
			err))
	}
	return err
}
