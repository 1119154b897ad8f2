package vectors

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The vectors of documents that bring certificates along, by code that shares nothing with
// this module.
func TestReplayChainsInPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: apt-get install python3")
	}
	out, err := exec.Command("python3", filepath.Join("..", "..", "testdata", "vectors", "replay_chains.py")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), " vectors, 0 of them not as they expect") {
		t.Errorf("%v\n%s", err, out)
	}
}
