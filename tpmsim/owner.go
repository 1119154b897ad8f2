package tpmsim

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// The C simulator keeps its whole state in C globals, so a process can run one TPM
// at a time, and go-tpm-tools makes a second opener wait for ever. Who owns it is
// therefore a fact of the process that only a package-level variable can hold; it
// holds nothing else. A program that opens go-tpm-tools' simulator behind this
// package's back is not seen here.
var owner struct {
	sync.Mutex
	where string // file:line of the opener, "" while nobody owns the simulator
}

// acquire takes the simulator for the opener at where, or says who has it.
func acquire(where string) error {
	owner.Lock()
	defer owner.Unlock()
	if owner.where != "" {
		return fmt.Errorf("%w: opened at %s and not closed yet; close that first, "+
			"do not open one in parallel tests, or use swtpm", ErrInUse, owner.where)
	}
	owner.where = where
	return nil
}

func release() {
	owner.Lock()
	defer owner.Unlock()
	owner.where = ""
}

// caller returns file:line of the innermost caller outside this package.
func caller() string {
	const self = "github.com/nodeattest/nodeattest/tpmsim."
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, self) {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
