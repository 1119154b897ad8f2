package node

import (
	"os"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestStart: no package of this repository does more than this at the program's start, which each call of the
// kubelet waits for. The trace of the Go runtime (GODEBUG=inittrace=1) has a line for each package:
//
//	init example.com/package @1.0 ms, 0.01 ms clock, 512 bytes, 4 allocs
func TestStart(t *testing.T) {
	const most = 16 << 10 // bytes; a single regular expression with counts takes 100 KiB and more
	command := exec.CommandContext(t.Context(), testkit.Must(os.Executable()), "-test.run=^$")
	command.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, trace)
	}
	ours := 0
	for line := range strings.SplitSeq(string(trace), "\n") {
		words := strings.Fields(line)
		if len(words) < 8 || words[0] != "init" || !strings.HasPrefix(words[1], "github.com/nodeattest/") {
			continue
		}
		ours++
		if size := testkit.Must(strconv.Atoi(words[7])); size > most {
			t.Errorf("package %s allocates %d bytes at the start, want at most %d: compile patterns when they are first used", path.Base(words[1]), size, most)
		}
	}
	if ours < 10 {
		t.Errorf("the trace has %d packages of this repository:\n%s", ours, trace)
	}
}
