package kubectl

import (
	"io"
	"os"
	"strings"
	"testing"
)

// TestIsTerminal: a pseudo-terminal is a terminal; a pipe, /dev/null and a reader in memory are not.
func TestIsTerminal(t *testing.T) {
	terminal, err := os.Open("/dev/ptmx")
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []io.Closer{terminal, null, pipe, other} {
		t.Cleanup(func() { _ = c.Close() })
	}
	for in, want := range map[io.Reader]bool{terminal: true, null: false, pipe: false, strings.NewReader("y\n"): false} {
		if isTerminal(in) != want {
			t.Errorf("%T: want a terminal: %t", in, want)
		}
	}
}
