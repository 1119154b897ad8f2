package vector

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The vectors of documents by clouds, by code that shares nothing with the SDK. Module cloud
// replays them in Go.
func TestReplayDocumentsInPython(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed: apt-get install -y python3")
	}
	for script, want := range map[string]string{
		"replay_documents.py": "199 vectors, 0 of them not as they expect\n",
		"replay_chains.py":    "215 vectors, 0 of them not as they expect\n",
		"replay_requests.py":  "98 vectors, 0 of them not as they expect\n",
	} {
		out, err := exec.Command("python3", filepath.Join(module, "python", script)).CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%s: %v\n%swant %s", script, err, out, want)
		}
	}
}
