package nodeattest_test

import (
	"strings"
	"testing"
)

// targets are the platforms that every package must build for without cgo, which
// `make cross` does. tpmsim too: there it compiles, and says what is missing when it is
// used.
var targets = []string{"linux/amd64", "linux/arm64", "windows/amd64", "darwin/arm64"}

// TestMakefileTargets holds the list of the Makefile against the list here.
func TestMakefileTargets(t *testing.T) {
	makefile := readFile(t, "Makefile")
	if want := "for target in " + strings.Join(targets, " ") + "; do"; !strings.Contains(makefile, want) {
		t.Errorf("the Makefile does not say %q", want)
	}
}
