package authenticator

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// heap is the memory held, at most, by a node and by the liar in the same process.
type heap struct {
	grown        atomic.Uint64 // by how much the heap grew, garbage included
	node, others atomic.Uint64 // held at one time by the node, and by the liar
}

func (h *heap) String() string {
	return fmt.Sprintf("the heap grew by at most %d KiB; where it grew by more than %d KiB, the node held at most %d KiB and the liar %d KiB",
		h.grown.Load()>>10, lookCloser>>10, h.node.Load()>>10, h.others.Load()>>10)
}

const (
	// lookCloser is the growth of the heap, in bytes, from which on it is asked whose it is.
	lookCloser = maxHeld / 8
	// profiled is the mean number of bytes from one allocation that is profiled to the next.
	profiled = 4 << 10
)

// measure measures the heap until the test ends.
func (h *heap) measure(t *testing.T) {
	percent, rate := debug.SetGCPercent(20), runtime.MemProfileRate
	runtime.MemProfileRate = profiled
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	began := m.HeapInuse
	end, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(end)
		<-ended
		debug.SetGCPercent(percent)
		runtime.MemProfileRate = rate
	})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
			}
			grown := max(m.HeapInuse, began) - began
			h.grown.Store(max(h.grown.Load(), grown))
			if grown > lookCloser {
				node, others := holders()
				h.node.Store(max(h.node.Load(), node))
				h.others.Store(max(h.others.Load(), others))
			}
		}
	}()
}

// holders returns how many bytes of the heap the node and the liar hold now.
func holders() (node, others uint64) {
	runtime.GC() // the profile is as old as the last collection
	n, ok := runtime.MemProfile(nil, false)
	var records []runtime.MemProfileRecord
	for !ok { // there are more records by now
		records = make([]runtime.MemProfileRecord, n+100)
		n, ok = runtime.MemProfile(records, false)
	}
	for _, r := range records[:n] {
		mean := float64(r.AllocBytes) / float64(r.AllocObjects)
		held := uint64(float64(r.InUseBytes()) / (1 - math.Exp(-mean/profiled))) // as runtime/pprof counts
		if isOthers(r.Stack()) {
			others += held
		} else {
			node += held
		}
	}
	return node, others
}

// isOthers reports whether a test or a server has allocated something, and not a node.
func isOthers(stack []uintptr) bool {
	for frames := runtime.CallersFrames(stack); ; {
		frame, more := frames.Next()
		switch {
		case strings.HasSuffix(frame.File, "/authenticator/helpers_lies_test.go"), strings.HasPrefix(frame.Function, "testing."):
			return false // it called the node
		case strings.HasSuffix(frame.File, "_test.go"), strings.HasPrefix(frame.Function, "net/http.(*conn)"), strings.HasPrefix(frame.Function, "net/http.(*http2server"):
			return true
		case !more:
			return false
		}
	}
}

// remember has a server hold so many bytes.
func (f *fakeAPI) remember(n int) []byte { return make([]byte, n) }
