// Package tpmsocket talks to a TPM behind a Unix socket that takes one command per connection,
// such as swtpm's: see [Socket].
package tpmsocket

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// CommandLimit is the longest that a command may take, including its connection: making a
	// large RSA key may take a minute.
	CommandLimit = 2 * time.Minute
	// responseHeaderSize is the size of tag, size and response code (TPM 2.0 Library, Part 1,
	// 18.9).
	responseHeaderSize = 10
)

// Socket is a TPM's Unix socket, for go-tpm's transport.FromReadWriteCloser. Writes and reads
// alternate: a command goes out in a connection of its own, and its response ends that
// connection. Between two commands another program may have its turn.
type Socket struct {
	Path  string
	Limit time.Duration // for one command

	conn   net.Conn // while a command is under way
	closed bool
}

// Write sends a command.
func (s *Socket) Write(command []byte) (int, error) {
	if s.closed {
		return 0, net.ErrClosed
	}
	if err := s.hangUp(); err != nil { // left by a command whose response was not read
		return 0, err
	}
	conn, err := net.Dial("unix", s.Path)
	if err != nil {
		return 0, err
	}
	s.conn = conn
	if err := conn.SetDeadline(time.Now().Add(s.Limit)); err != nil {
		return 0, err
	}
	return conn.Write(command)
}

// Read reads one whole response, which states its own length. A response longer than p is an
// error.
func (s *Socket) Read(p []byte) (n int, err error) {
	if s.conn == nil {
		return 0, fmt.Errorf("no command: %w", net.ErrClosed)
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
		return 0, fmt.Errorf("response: %w", err)
	}
	size := binary.BigEndian.Uint32(p[2:6])
	if size < responseHeaderSize || uint64(size) > uint64(len(p)) {
		return 0, fmt.Errorf("a response that says it has %d bytes, want %d to %d", size, responseHeaderSize, len(p))
	}
	if _, err := io.ReadFull(s.conn, p[responseHeaderSize:size]); err != nil {
		return 0, fmt.Errorf("response: %w", err)
	}
	return int(size), nil
}

// Close ends the use of the socket. A second Close does nothing.
func (s *Socket) Close() error {
	s.closed = true
	return s.hangUp()
}

func (s *Socket) hangUp() error {
	if s.conn == nil {
		return nil
	}
	conn := s.conn
	s.conn = nil
	return conn.Close()
}
