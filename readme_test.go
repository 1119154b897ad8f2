package nodeattest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestREADME takes the first Go code block out of the README, vets it, runs it and
// compares what it prints with the comment "// Output:" at its end.
func TestREADME(t *testing.T) {
	none(t, readmeProblems(t, readFile(t, "README.md")))
}

func TestREADMEBites(t *testing.T) {
	program := func(body string) string {
		return "# Title\n\n```go\npackage main\n\nimport \"fmt\"\n\nfunc main() {\n" + body + "}\n```\n\n```go\nnot this one\n```\n"
	}
	for _, tt := range []struct{ name, readme, want string }{
		{"good", program("\tfmt.Println(\"a\")\n\tfmt.Println(\"b\")\n\t// Output:\n\t// a\n\t// b\n"), ""},
		{"no block", "# Title\n\n```sh\nmake test\n```\n", "README.md has no Go code block"},
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

// TestPackageTable holds the lists of packages in README.md and doc.go against the
// packages that are there.
func TestPackageTable(t *testing.T) {
	none(t, packageListProblems(loadTree(t, "."), readFile(t, "README.md"), readFile(t, "doc.go")))
}

func TestPackageTableBites(t *testing.T) {
	tr := loadTree(t, fixture(t, map[string]string{
		"oid/oid.go":          "package oid\n",
		"csr/csr.go":          "package csr\n",
		"internal/der/der.go": "package der\n",
	}))
	exactly(t, packageListProblems(tr, "| [`csr`](csr) | requests |\n| [`gone`](gone) | |\n", "// Package oid is\n// Package csr is\n// Package gone is\n"),
		"README.md: no row for package oid",
		"README.md: a row for gone, which is no public package",
		"doc.go: a paragraph for gone, which is no public package",
	)
}

// TestSupportPolicy holds the Go version of the README against go.mod.
func TestSupportPolicy(t *testing.T) {
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))
	if version == nil {
		t.Fatal("go.mod has no go line")
	}
	readme := readFile(t, "README.md")
	for _, want := range []string{"Go " + version[1], "Kubernetes 1.36", "TPM 2.0", "make demo", "make test"} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

func readmeProblems(t *testing.T, readme string) []string {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+readme, "\n```go\n")
	code, _, closed := strings.Cut(rest, "\n```\n")
	if !ok || !closed {
		return []string{"README.md has no Go code block"}
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

func packageListProblems(tr *tree, readme, doc string) []string {
	var problems []string
	public := make(map[string]bool)
	for _, p := range tr.packages {
		if !p.public() {
			continue
		}
		public[p.dir] = true
		if !strings.Contains(readme, "| [`"+p.dir+"`]("+p.dir+") |") {
			problems = append(problems, "README.md: no row for package "+p.dir)
		}
		if !strings.Contains(doc, "// Package "+p.dir+" ") {
			problems = append(problems, "doc.go: no paragraph for package "+p.dir)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`([a-z/]+)`\\]").FindAllStringSubmatch(readme, -1) {
		if !public[row[1]] {
			problems = append(problems, "README.md: a row for "+row[1]+", which is no public package")
		}
	}
	for _, par := range regexp.MustCompile(`(?m)^// Package ([a-z/]+) `).FindAllStringSubmatch(doc, -1) {
		if !public[par[1]] && par[1] != "nodeattest" {
			problems = append(problems, "doc.go: a paragraph for "+par[1]+", which is no public package")
		}
	}
	return problems
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
