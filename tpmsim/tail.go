package tpmsim

import "sync"

// tail is a writer that keeps the last bytes written to it. It is safe for
// concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// tailSize is how many bytes a tail keeps at least.
const tailSize = 8 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 2*tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
