package kube

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPrograms runs every command of the page on programs on a clone of this very tree, with a
// folder of its own for /usr/local. The programs that it installs run, and say which they are.
func TestPrograms(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	local := t.TempDir()
	s.run(t, "git clone -q https://github.com/nodeattest/nodeattest && cd nodeattest")
	for _, command := range commandsOf(t, "../../docs/programs.md") {
		s.run(t, strings.ReplaceAll(command, " /usr/local/", " "+local+"/"))
	}
	for program, say := range map[string]string{"kubectl-nodeattest": "rebind", "kubelet-authenticator": "status"} {
		if out := s.run(t, filepath.Join(local, "bin", program)+" --help 2>&1 || true"); !strings.Contains(out, say) {
			t.Errorf("%s --help: %s, want it to speak of %q", program, out, say)
		}
	}
	// What is given to others has what must go with it.
	folder := s.run(t, "ls dist/nodeattest-v0.0.0-dev-linux-amd64")
	for _, file := range []string{"LICENSE", "THIRD_PARTY", "sbom.cdx.json", "node"} {
		if !strings.Contains(folder, file) {
			t.Errorf("no %s in %s", file, folder)
		}
	}
	first := s.run(t, "cat dist/SHA256SUMS")
	if again := s.run(t, "cd .. && git clone -q https://github.com/nodeattest/nodeattest other && cd other && ARCHES=amd64 scripts/release.sh v0.0.0-dev dist >/dev/null && cat dist/SHA256SUMS"); again != first {
		t.Errorf("another clone of the same commit has other sums:\n%s\n%s", first, again)
	}
}
