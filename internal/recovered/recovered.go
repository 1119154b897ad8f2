// Package recovered calls code of others, such as a signer, a fetcher, a transport or a kind of
// evidence, so that its panic is the error of one call. In a goroutine, a panic ends the process,
// whatever the caller recovers from: a test of the repository's root finds each goroutine that does
// not go through this package.
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

// Go calls f in a goroutine, as [Call] does. The channel has room for the error, so that nothing
// needs to receive it. What f leaves in variables may be read once the error was received.
func Go(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		err := errExit
		defer func() { done <- err }()
		err = Call(f)
	}()
	return done
}

// Dial is a dialler for a transport, which calls it in goroutines of its own. Nil stays nil.
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

// text is a panic's value if it is a text or an error. Another is named by its type alone: it may
// contain a key.
func text(p any) string {
	switch p.(type) {
	case string, error:
		return refusal.Text(fmt.Sprint(p)) // which recovers from a panic of its method Error
	}
	return fmt.Sprintf("a %T", p)
}

// place is the function that panicked, seen from the deferred function that recovers.
func place() string {
	callers := make([]uintptr, 16)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)]) // without Callers, place and the deferred function
	for frame, more := frames.Next(); ; frame, more = frames.Next() {
		if !strings.HasPrefix(frame.Function, "runtime.") || !more {
			return path.Base(frame.Function) + " (" + path.Base(frame.File) + ":" + strconv.Itoa(frame.Line) + ")"
		}
	}
}
