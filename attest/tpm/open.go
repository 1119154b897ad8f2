package tpm

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2/transport"

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
		return transport.FromReadWriteCloser(&socket{path: path, limit: socketCommandLimit}), nil
	case info.Mode()&fs.ModeCharDevice != 0:
		device, err := openDevice(path)
		if err != nil {
			return nil, fmt.Errorf("tpm: open: %w", err)
		}
		return device, nil
	}
	return nil, refusal.Config("path", path+", a file of mode "+info.Mode().String(), "the device file or the Unix socket of a TPM")
}

const (
	// socketCommandLimit is the longest that a command takes, with its connection.
	socketCommandLimit = 2 * time.Minute
	// responseHeaderSize is that of tag, size and response code (TPM 2.0 Library, Part 1,
	// 18.9).
	responseHeaderSize = 10
)

// socket is a TPM's Unix socket. It is written to and read from by turns: a command goes
// out in a connection of its own, and its response ends that. Between two commands another
// program may have its turn.
type socket struct {
	path   string
	limit  time.Duration
	conn   net.Conn // while a command is under way
	closed bool
}

// Write sends a command.
func (s *socket) Write(command []byte) (int, error) {
	if s.closed {
		return 0, fmt.Errorf("tpm: %w", net.ErrClosed)
	}
	if err := s.hangUp(); err != nil { // of a command whose response nobody read
		return 0, err
	}
	conn, err := net.Dial("unix", s.path)
	if err != nil {
		return 0, fmt.Errorf("tpm: %w", err)
	}
	s.conn = conn
	if err := conn.SetDeadline(time.Now().Add(s.limit)); err != nil {
		return 0, fmt.Errorf("tpm: %w", err)
	}
	return conn.Write(command)
}

// Read reads one whole response, which says how long it is. One that is longer than p is
// an error.
func (s *socket) Read(p []byte) (n int, err error) {
	if s.conn == nil {
		return 0, fmt.Errorf("tpm: no command: %w", net.ErrClosed)
	}
	defer func() {
		if closing := s.hangUp(); err == nil {
			err = closing
		}
	}()
	if len(p) < responseHeaderSize {
		return 0, io.ErrShortBuffer
	}
	if _, err := io.ReadFull(s.conn, p[:responseHeaderSize]); err != nil {
		return 0, fmt.Errorf("tpm: response: %w", err)
	}
	size := binary.BigEndian.Uint32(p[2:6])
	if size < responseHeaderSize || uint64(size) > uint64(len(p)) {
		return 0, fmt.Errorf("tpm: a response that says it has %d bytes, want %d to %d", size, responseHeaderSize, len(p))
	}
	if _, err := io.ReadFull(s.conn, p[responseHeaderSize:size]); err != nil {
		return 0, fmt.Errorf("tpm: response: %w", err)
	}
	return int(size), nil
}

// Close ends the use of the socket. A second Close does nothing.
func (s *socket) Close() error {
	s.closed = true
	return s.hangUp()
}

func (s *socket) hangUp() error {
	if s.conn == nil {
		return nil
	}
	conn := s.conn
	s.conn = nil
	return conn.Close()
}
