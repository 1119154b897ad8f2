package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// outside is a testing.TB outside of a test, with the methods that package controlplane and this program use.
type outside struct {
	testing.TB
	ctx      context.Context
	failed   bool
	cleanups []func()
}

// ended is the panic of Fatal.
type ended struct{}

// alone runs f, then its cleanups, and reports whether nothing failed.
func alone(ctx context.Context, f func(t *outside)) bool {
	ctx, cancel := context.WithCancel(ctx)
	t := &outside{ctx: ctx}
	defer func() {
		cancel()
		for _, do := range slices.Backward(t.cleanups) {
			do()
		}
		if r := recover(); r != nil && r != any(ended{}) {
			panic(r)
		}
	}()
	f(t)
	return !t.failed
}

func (t *outside) Helper()                  {}
func (t *outside) Context() context.Context { return t.ctx }
func (t *outside) Failed() bool             { return t.failed }
func (t *outside) Cleanup(f func())         { t.cleanups = append(t.cleanups, f) }

func (t *outside) Logf(format string, args ...any) {
	fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (t *outside) Fatal(args ...any) {
	t.failed = true
	t.Logf("%s", fmt.Sprint(args...))
	panic(ended{})
}

func (t *outside) Fatalf(format string, args ...any) { t.Fatal(fmt.Sprintf(format, args...)) }
func (t *outside) Skipf(format string, args ...any)  { t.Fatal(fmt.Sprintf(format, args...)) }

// TempDir is removed at the end.
func (t *outside) TempDir() string {
	dir, err := os.MkdirTemp("", "nodeattest-size-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
