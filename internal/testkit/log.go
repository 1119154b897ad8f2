package testkit

import (
	"strings"
	"sync"
)

// Log collects what is written to it, for tests that read it meanwhile.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds text.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
