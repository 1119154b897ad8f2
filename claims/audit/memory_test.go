package audit

import (
	"bytes"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// repeated reads a text again and again, up to a size, and then an end. It measures the live heap every
// 16 MiB.
type repeated struct {
	text, end []byte
	left      int64
	most      *int64
	measured  int64
	part      []byte
}

func (r *repeated) Read(b []byte) (int, error) {
	if len(r.part) == 0 {
		switch {
		case r.left > 0:
			r.part = r.text
			r.left -= int64(len(r.text))
		case r.end != nil:
			r.part, r.end = r.end, nil
		default:
			return 0, io.EOF
		}
	}
	n := copy(b, r.part)
	r.part = r.part[n:]
	if r.measured -= int64(n); r.measured < 0 {
		r.measured = 16 << 20
		*r.most = max(*r.most, heap())
	}
	return n, nil
}

func (r *repeated) Close() error { return nil }

// heap is the size of the live heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestMemory: a log of 1 GB is read in the memory of a few longest lines, whatever its lines are. 1 GB with
// NODEATTEST_LONG=1, a tenth otherwise.
func TestMemory(t *testing.T) {
	size := int64(100 << 20)
	if os.Getenv("NODEATTEST_LONG") == "1" {
		size = 1 << 30
	}
	var lines bytes.Buffer
	for i := range 500 { // each with users, addresses and agents of its own
		e := request(i, account, tokenA, members{"sourceIPs": []string{strings.Repeat("1", i)}, "userAgent": strings.Repeat("a", i)})
		lines.WriteString(line(e) + "\n")
	}
	lines.WriteString(line(issue(0, tokenB, "admin", admins)) + "\n" + strings.Repeat("x", maxLine) + "\n")
	lines.WriteString(line(request(0, "admin", admins, members{"requestURI": strings.Repeat("\\", maxLine/3)})) + "\n")
	end := []byte(line(issue(0, tokenA, node, certificate)) + "\n")
	before, most := heap(), int64(0)
	log := Log{Name: "large", Open: func() (io.ReadCloser, error) {
		return &repeated{text: lines.Bytes(), end: bytes.Clone(end), left: size, most: &most}, nil
	}}
	began := time.Now()
	c := traced(t, tokenA, log)
	if name, err := c.Node(); name != "node-1" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	t.Logf("%d MiB twice in %s: at most %d KiB of live heap; %s", size>>20, time.Since(began).Round(time.Millisecond), (most-before)>>10, c.Logs)
	// The collector lets the heap grow to twice its live part, and to 4 MiB at least.
	if most-before > 24<<20 {
		t.Errorf("a live heap of %d bytes for a log of %d, at most 24 MiB are promised", most-before, size)
	}
}
