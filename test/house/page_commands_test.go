package house_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPageCommands: each command of CONTRIBUTING.md and vectors/cloud/README.md names tests, a tool and
// its folder, or a target that there are. To run them takes minutes, or writes vectors anew.
func TestPageCommands(t *testing.T) {
	for _, page := range []string{"CONTRIBUTING.md", "vectors/cloud/README.md"} {
		commands := 0
		for _, block := range blocks(readFile(t, page)) {
			for line := range strings.Lines(block.text) {
				if block.language == "sh" {
					commands++
					none(t, commandProblems(t, ".", line))
				}
			}
		}
		if commands == 0 {
			t.Errorf("%s: no commands", page)
		}
	}
}

func TestPageCommandsBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"a/b/b_test.go": "package b\n\nfunc TestB(t *testing.T) {}\n", "tools/go.mod": "tool example.org/cmd/lint\n",
		"Makefile": "good:\n\techo $(TESTARGS)\nbad:\n\techo\n",
	})
	for command, want := range map[string]string{
		"cd a && go test ./b -run TestB    # why\n":                "",
		"cd a && go test ./b ./c -run TestB":                       "no test a/c.TestB",
		"cd a && go test ./b -update -run 'Test(B|Gone)'":          "no test a/b.TestGone",
		"GOWORK=off go tool -modfile=tools/go.mod lint run ./a":    "",
		"GOWORK=off go tool -modfile=tools/go.mod gone run ./a":    "no tool gone in tools/go.mod, or no folder a",
		"GOWORK=off go tool -modfile=tools/go.mod lint run ./gone": "no tool lint in tools/go.mod, or no folder gone",
		"make good TESTARGS='-run B'":                              "",
		"make bad TESTARGS='-run B'":                               "make bad does not take TESTARGS",
		"make gone TESTARGS='-run B'":                              "make gone does not take TESTARGS",
		"cd a && go test ./b -run TestB && ls":                     "no form of a command: cd a && go test ./b -run TestB && ls",
	} {
		if got := strings.Join(commandProblems(t, root, command), ", "); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}

var (
	runTests  = regexp.MustCompile(`^cd (\S+) && go test ((?:\./\S+ )+)(?:-update )?-run '?Test(\w+|\([\w|]+\))'?$`)
	runTool   = regexp.MustCompile(`^GOWORK=off go tool -modfile=(\S+) (\S+) run \./(\S+)$`)
	runTarget = regexp.MustCompile(`^make (\w+) (TESTARGS)='([^']+)'$`)
)

// commandProblems lists the tests, tools, folders and targets of a command that there are not. A comment
// stands after two spaces.
func commandProblems(t *testing.T, root, line string) (problems []string) {
	t.Helper()
	command, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
	if part := runTests.FindStringSubmatch(command); part != nil {
		for folder := range strings.FieldsSeq(part[2]) {
			for name := range strings.SplitSeq(strings.Trim(part[3], "()"), "|") {
				full := filepath.Join(part[1], folder) + ".Test" + name
				if files, test, ok := testFiles(t, root, full); !ok || !strings.Contains(files, "\nfunc "+test+"(") {
					problems = append(problems, "no test "+full)
				}
			}
		}
		return problems
	}
	if part := runTool.FindStringSubmatch(command); part != nil {
		tools := strings.Split(readFile(t, filepath.Join(root, part[1])), "\n")
		has := slices.ContainsFunc(tools, func(line string) bool { return strings.HasSuffix(line, "/cmd/"+part[2]) })
		if _, err := os.Stat(filepath.Join(root, part[3])); err != nil || !has {
			problems = append(problems, fmt.Sprintf("no tool %s in %s, or no folder %s", part[2], part[1], part[3]))
		}
		return problems
	}
	part := runTarget.FindStringSubmatch(command)
	if part == nil {
		return []string{"no form of a command: " + command}
	}
	out, err := exec.Command("make", "-C", root, "-n", part[1], part[2]+"="+part[3]).CombinedOutput()
	if err != nil || !strings.Contains(string(out), part[3]) {
		problems = append(problems, "make "+part[1]+" does not take "+part[2])
	}
	return problems
}
