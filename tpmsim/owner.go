package tpmsim

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
)

// The C simulator keeps its whole state in C globals, so a process can run only one TPM
// at a time, and go-tpm-tools makes a second opener wait forever. The owner is therefore
// a property of the process that only a package-level variable can hold; it holds nothing
// else: file:line of the opener, nil while the simulator has no owner. A program that opens
// go-tpm-tools' simulator without this package is not detected here.
var owner atomic.Pointer[string]

// acquire takes the simulator for the opener at where, or returns an error that names the
// owner.
func acquire(where string) error {
	for !owner.CompareAndSwap(nil, &where) {
		if first := owner.Load(); first != nil {
			return fmt.Errorf("%w: opened at %s and not closed yet; close that first, "+
				"do not open one in parallel tests, or use swtpm", ErrInUse, *first)
		}
	}
	return nil
}

func release() { owner.Store(nil) }

// caller returns file:line of the innermost caller outside this package.
func caller() string {
	const self = "github.com/nodeattest/nodeattest/tpmsim."
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if !more || !strings.HasPrefix(f.Function, self) {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
}
