package recovered

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

type faulty struct{}

func (*faulty) Error() string { panic("no text") }

// A panic becomes an error with its text and place, and without what else its value contains.
func TestCall(t *testing.T) {
	var none *int
	for name, c := range map[string]struct {
		f    func() error
		want string
	}{
		"a text":                  {func() error { panic("CKR_SESSION_HANDLE_INVALID") }, "CKR_SESSION_HANDLE_INVALID"},
		"an error":                {func() error { panic(refusal.ErrRetry) }, refusal.ErrRetry.Error()},
		"nil":                     {func() error { panic(nil) }, "nil"},
		"an error of the runtime": {func() error { *none = 1; return nil }, "nil pointer"},
		"an error that panics":    {func() error { panic(new(faulty)) }, "PANIC=Error method: no text"},
		"a key":                   {func() error { panic(ecdsa.PrivateKey{}) }, ": a ecdsa.PrivateKey"},
		"a long text":             {func() error { panic(strings.Repeat("a", 1<<20)) }, "aa..."},
		"lines":                   {func() error { panic("a\nb") }, `a\nb`},
	} {
		t.Run(name, func(t *testing.T) {
			err := Call(c.f)
			if err == nil || !strings.HasPrefix(err.Error(), "panic in recovered.TestCall.func") || !strings.Contains(err.Error(), "(recovered_test.go:") || !strings.HasSuffix(err.Error(), c.want) && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %.400v, want %q in it", err, c.want)
			}
			if err != nil && len(err.Error()) > 512 {
				t.Errorf("%d bytes", len(err.Error()))
			}
			if errors.Is(err, refusal.ErrRetry) {
				t.Error("the value of a panic decides")
			}
		})
	}
	for _, want := range []error{nil, io.EOF} {
		if err := Call(func() error { return want }); err != want { //nolint:errorlint // the very error
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// Each end of a function reaches the receiver: an error, a panic, and the end of its goroutine.
func TestGo(t *testing.T) {
	set := 0
	if err := <-Go(func() error { set = 1; return io.EOF }); !errors.Is(err, io.EOF) || set != 1 {
		t.Errorf("got %v, %d", err, set)
	}
	if err := <-Go(func() error { panic("once") }); err == nil || !strings.Contains(err.Error(), "once") {
		t.Errorf("after a panic: %v", err)
	}
	if err := <-Go(func() error { runtime.Goexit(); return nil }); !errors.Is(err, errExit) {
		t.Errorf("after runtime.Goexit: %v", err)
	}
	if err := <-Go(func() error { return nil }); err != nil {
		t.Error(err)
	}
	Go(func() error { panic("that is not received") })
}

func TestDial(t *testing.T) {
	if Dial(nil) != nil {
		t.Error("a dialler where there was none")
	}
	here, _ := net.Pipe()
	conn, err := Dial(func(_ context.Context, network, address string) (net.Conn, error) {
		if network+address != "tcphost" {
			panic(network + address)
		}
		return here, io.EOF
	})(t.Context(), "tcp", "host")
	if conn != here || !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v", conn, err)
	}
	conn, err = Dial(func(context.Context, string, string) (net.Conn, error) { panic("a dialler of others") })(t.Context(), "tcp", "host")
	if conn != nil || err == nil {
		t.Errorf("after a panic: %v, %v", conn, err)
	}
}
