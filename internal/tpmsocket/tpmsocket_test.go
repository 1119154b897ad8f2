package tpmsocket

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
)

// serveTPM gives each command that comes over a socket to answer, which writes what it
// likes, and returns the socket's path.
func serveTPM(t testing.TB, answer func(c net.Conn, command []byte)) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tpm") // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "tpm")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
		_ = os.RemoveAll(dir)
	})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			command := make([]byte, 100)
			if n, err := c.Read(command); err == nil {
				answer(c, command[:n])
			}
			_ = c.Close()
		}
	}()
	return path
}

func openTPM(t testing.TB, path string) transport.TPMCloser {
	t.Helper()
	opened := transport.FromReadWriteCloser(&Socket{Path: path, Limit: CommandLimit})
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened
}

// response is one of so many bytes, which says that it has size.
func response(size, bytes int) []byte {
	r := make([]byte, max(bytes, responseHeaderSize))
	copy(r, []byte{0x80, 0x01, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)})
	return r[:bytes]
}

func TestResponsesOverASocket(t *testing.T) {
	for name, c := range map[string]struct {
		response []byte
		want     int // bytes; 0 for an error
	}{
		"a header":               {response(10, 10), 10},
		"the longest":            {response(4096, 4096), 4096},
		"more than it says":      {response(12, 40), 12},
		"nothing":                {nil, 0},
		"half a header":          {response(10, 5), 0},
		"half a response":        {response(40, 20), 0},
		"less than a header":     {response(9, 20), 0},
		"a size of 0":            {response(0, 20), 0},
		"a byte too much":        {response(4097, 4097), 0},
		"a size over all memory": {response(1<<32-1, 20), 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := serveTPM(t, func(conn net.Conn, _ []byte) {
				_, _ = conn.Write(c.response[:len(c.response)/2])
				time.Sleep(time.Millisecond) // in two pieces
				_, _ = conn.Write(c.response[len(c.response)/2:])
			})
			got, err := openTPM(t, path).Send([]byte{1, 2, 3})
			if len(got) != c.want || (err == nil) != (c.want != 0) {
				t.Errorf("got %d bytes, %v, want %d", len(got), err, c.want)
			}
		})
	}
}

// A connection serves one command, and what one leaves behind is nothing to the next.
func TestCommandsOverASocket(t *testing.T) {
	commands := make(chan string, 3)
	opened := openTPM(t, serveTPM(t, func(c net.Conn, command []byte) {
		commands <- string(command)
		if string(command) != "silence" {
			_, _ = c.Write(response(11, 11))
		}
	}))
	for _, command := range []string{"one", "silence", "two"} {
		if _, err := opened.Send([]byte(command)); (err == nil) != (command != "silence") {
			t.Errorf("%s: %v", command, err)
		}
	}
	for _, want := range []string{"one", "silence", "two"} {
		if got := <-commands; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if err := errors.Join(opened.Close(), opened.Close()); err != nil {
		t.Error(err)
	}
	if _, err := opened.Send([]byte("three")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSocketThatDoesNotAnswer(t *testing.T) {
	hold := make(chan struct{})
	s := &Socket{Path: serveTPM(t, func(net.Conn, []byte) { <-hold }), Limit: 50 * time.Millisecond}
	defer close(hold)
	_, err := s.Write([]byte{1})
	for ; errors.Is(err, os.ErrDeadlineExceeded); _, err = s.Write([]byte{1}) { // its time was over before it was sent
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Read(make([]byte, 100)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a response without a command: %v", err)
	}
	s.Limit = CommandLimit
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, responseHeaderSize-1)); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("no room: %v", err)
	}
	for range 2 { // the second hangs up the first
		if _, err := s.Write([]byte{1}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
