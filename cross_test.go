package nodeattest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// targets are the platforms that every package must build for without cgo. tpmsim
// too: there it compiles, and says what is missing when it is used.
var targets = []string{"linux/amd64", "linux/arm64", "windows/amd64", "darwin/arm64"}

func TestCrossBuild(t *testing.T) {
	none(t, buildProblems("."))
}

func TestCrossBuildBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"oid/oid.go":         "package oid\n\nconst Size = size\n",
		"oid/size_linux.go":  "package oid\n\nconst size = 1\n",
		"oid/size_darwin.go": "package oid\n\nconst size = 2\n",
		// Without cgo this file is left out, and with it its package.
		"tpmsim/tpmsim.go": "package tpmsim\n\nvar Size = size\n",
		"tpmsim/cgo.go":    "package tpmsim\n\nimport \"C\"\n\nvar size = 1\n",
	})
	exactly(t, buildProblems(root),
		"linux/amd64: tpmsim/tpmsim.go:3", "linux/arm64: tpmsim/tpmsim.go:3", "darwin/arm64: tpmsim/tpmsim.go:3",
		"windows/amd64: oid/oid.go:3", "windows/amd64: tpmsim/tpmsim.go:3",
	)
}

// TestMakefileTargets holds the list of the Makefile against the list here.
func TestMakefileTargets(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "for target in " + strings.Join(targets, " ") + "; do"; !strings.Contains(string(makefile), want) {
		t.Errorf("the Makefile does not say %q", want)
	}
}

// buildProblems has one line for each error of the compiler, and platform.
func buildProblems(root string) []string {
	var problems []string
	for _, target := range targets {
		out, err := goCommand(root, target, "build", "./...")
		if err == nil {
			continue
		}
		before := len(problems)
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				problems = append(problems, fmt.Sprintf("%s: %s", target, line))
			}
		}
		if len(problems) == before {
			problems = append(problems, fmt.Sprintf("%s: %v", target, err))
		}
	}
	return problems
}
