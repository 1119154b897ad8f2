package house_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestREADME takes the one Go code block out of the README, vets it, runs it and
// compares its output with the comment "// Output:" at its end.
func TestREADME(t *testing.T) {
	none(t, readmeProblems(t, readFile(t, "README.md")))
}

// TestREADMEModule runs the commands of the section on a module of one's own, in an empty folder with
// the program of the page. A link to this tree stands in for the clone.
func TestREADMEModule(t *testing.T) {
	var commands string
	for _, block := range blocks(readFile(t, "README.md")) {
		if block.heading == "Use it in your module" {
			commands += block.text
		}
	}
	const clone = "git clone https://" + modulePath + "\n"
	if !strings.HasPrefix(commands, clone) {
		t.Fatalf("the commands begin with %q, want %q", commands, clone)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(readFile(t, "README.md"), "\n```go\n")
	code, _, _ = strings.Cut(code, "\n```\n")
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(code+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(folder, "nodeattest")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-e", "-c", strings.TrimPrefix(commands, clone))
	cmd.Dir = folder
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	none(t, outputProblems(code, string(out)))
}

func TestREADMEBites(t *testing.T) {
	program := func(body string) string {
		return "# Title\n\n```go\npackage main\n\nimport \"fmt\"\n\nfunc main() {\n" + body + "}\n```\n"
	}
	for _, tt := range []struct{ name, readme, want string }{
		{"good", program("\tfmt.Println(\"a\")\n\tfmt.Println(\"b\")\n\t// Output:\n\t// a\n\t// b\n"), ""},
		{"no block", "# Title\n\n```sh\nmake test\n```\n", "README.md has no Go code block"},
		{"two blocks", program("\tfmt.Println(\"a\")\n\t// Output: a\n") + "\n```go\nnot this one\n```\n", "README.md has a second Go code block"},
		{"block without an end", "```go\npackage main\n", "README.md has no Go code block"},
		{"does not compile", program("\tfmt.Printl(\"a\")\n\t// Output: a\n"), "undefined: fmt.Printl"},
		{"does not pass vet", program("\tfmt.Printf(\"%d\\n\", \"a\")\n\t// Output: a\n"), "wrong type"},
		{"prints something else", program("\tfmt.Println(\"b\")\n\t// Output: a\n"), `prints "b", and says it prints "a"`},
		{"says nothing of its output", program("\tfmt.Println(\"b\")\n"), `has no "// Output:" comment`},
		{"fails", program("\tpanic(fmt.Sprint(\"oo\", \"ps\"))\n\t// Output: a\n"), "panic: oops"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			problems := readmeProblems(t, tt.readme)
			if tt.want == "" {
				none(t, problems)
				return
			}
			exactly(t, problems, tt.want)
		})
	}
}

func readmeProblems(t *testing.T, readme string) []string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+readme, "\n```go\n")
	code, after, closed := strings.Cut(rest, "\n```\n")
	switch {
	case !ok || !closed:
		return []string{"README.md has no Go code block"}
	case strings.Contains(after, "\n```go\n"):
		return []string{"README.md has a second Go code block"}
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(code+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// The file is outside the module, but the go command runs inside it, so that
	// the program imports this module's packages.
	for _, args := range [][]string{{"vet", file}, {"run", file}} {
		out, err := goCommand(".", "", args...)
		if err != nil {
			return []string{fmt.Sprintf("go %s: %v\n%s", args[0], err, out)}
		}
		if args[0] == "run" {
			return outputProblems(code, out)
		}
	}
	return nil
}

func outputProblems(code, out string) []string {
	_, comment, ok := strings.Cut(code, "// Output:")
	if !ok {
		return []string{`README.md: the program has no "// Output:" comment`}
	}
	var want []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSpace(line)
		if line == "}" {
			break
		}
		want = append(want, strings.TrimSpace(strings.TrimPrefix(line, "//")))
	}
	wanted := strings.TrimSpace(strings.Join(want, "\n"))
	if got := strings.TrimSpace(out); got != wanted {
		return []string{fmt.Sprintf("README.md: the program prints %q, and says it prints %q", got, wanted)}
	}
	return nil
}
