// Package recovered calls a caller's code, such as a signer, a fetcher, a transport or a kind of
// evidence, and turns its panic into the error of that one call. A panic in a goroutine that does
// not recover ends the process. Authors of kinds and adapters start goroutines with [Go], and give
// transports that dial in goroutines of their own a function made by [Dial].
package recovered

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// errExit is the error of a function that ended its goroutine (runtime.Goexit).
var errExit = errors.New("the code that was called has ended its goroutine")

// Call returns f's error. If f panics, the error names the value and the function that panicked.
// Nothing else of the value is kept: errors.Is and errors.As find nothing in it.
func Call(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("panic in " + place() + ": " + text(p))
		}
	}()
	return f()
}

// Go calls f in a goroutine, as [Call] does. The channel is buffered, so the caller need not
// receive the error. Variables that f writes may be read after the receive.
func Go(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errExit
		defer func() { done <- err }()
		err = Call(f)
	}()
	return done
}

// Dial wraps a dial function for a transport, which calls it in its own goroutines: a panic becomes
// the error of that dial. Dial of nil is nil.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	if dial == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = Call(func() (err error) {
			conn, err = dial(ctx, network, address)
			return err
		})
		return conn, err
	}
}

// text returns a panic's value if it is a string or an error, else only its type: the value may
// contain a key.
func text(p any) string {
	switch p.(type) {
	case string, error:
		return refusal.Text(fmt.Sprint(p)) // which recovers from a panic of its method Error
	}
	return fmt.Sprintf("a %T", p)
}

// place returns the function that panicked. The deferred function that recovers must call it.
func place() string {
	callers := make([]uintptr, 16)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)]) // without Callers, place and the deferred function
	for frame, more := frames.Next(); ; frame, more = frames.Next() {
		if !strings.HasPrefix(frame.Function, "runtime.") || !more {
			return path.Base(frame.Function) + " (" + path.Base(frame.File) + ":" + strconv.Itoa(frame.Line) + ")"
		}
	}
}
