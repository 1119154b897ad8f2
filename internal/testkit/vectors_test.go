package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// skipper is a test that notes why it is skipped.
type skipper struct {
	testing.TB
	reason string
}

func (s *skipper) Helper() {}

func (s *skipper) Skip(args ...any) {
	s.reason = fmt.Sprint(args...)
	runtime.Goexit()
}

// VectorFolder searches the parent folders, and skips the test if none has the vectors.
func TestVectorFolder(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	NoError(t, os.MkdirAll(dir, 0o755))
	t.Chdir(dir)
	s, done := &skipper{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		t.Error("found", VectorFolder(s))
	}()
	if <-done; !strings.Contains(s.reason, "module of their own") {
		t.Errorf("skipped because %q", s.reason)
	}
	NoError(t, os.Mkdir(filepath.Join(root, "vectors"), 0o755))
	NoError(t, os.WriteFile(filepath.Join(root, "vectors", "go.mod"), nil, 0o644))
	if got, want := VectorFolder(t, "data"), filepath.Join("..", "..", "vectors", "data"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
