package vectortest

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

// The folder is found from a package's own. Where there is none, the test is skipped and says so.
func TestFolder(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	s, done := &skipper{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		t.Error("found", Folder(s))
	}()
	if <-done; !strings.Contains(s.reason, "module of their own") {
		t.Errorf("skipped because %q", s.reason)
	}
	if err := os.Mkdir(filepath.Join(root, "vectors"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "vectors", "go.mod"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := Folder(t, "data"), filepath.Join("..", "..", "vectors", "data"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
