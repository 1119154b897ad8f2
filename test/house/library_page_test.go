package house_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLibraryPage: each block of Go on the page for users of the library stands in the file that
// is linked last before it, but for the indentation. Tests compile those files, and run examples.
func TestLibraryPage(t *testing.T) {
	blocks, problems := libraryProblems(".", readFile(t, "docs/library.md"))
	none(t, problems)
	t.Logf("%d blocks of Go", blocks)
}

func TestLibraryPageBites(t *testing.T) {
	root := fixture(t, map[string]string{"a/a.go": "package a\n\nfunc A() {\n\tone()\n\n\ttwo()\n\tthree()\n}\n"})
	const link = "[`A`](../a/a.go):\n\n"
	block := func(code string) string { return "```go\n" + code + "\n```\n\n" }
	for _, tt := range []struct{ name, page, want string }{
		{"good", link + block("func A() {\n\tone()\n\n\ttwo()") + "text\n\n" + block("two()\nthree()") + block("one()\n\ntwo()"), ""},
		{"no block", link, "no blocks of Go"},
		{"no file", block("one()"), "block 1: no link to its file before it"},
		{"another file", "[`A`](../a/b.go)\n" + block("one()"), "block 1: nothing is at ../a/b.go"},
		{"another line", link + block("one()") + block("one()\ntwo()"), "block 2: is not in ../a/a.go"},
		{"half a line", link + block("two"), "block 1: is not in ../a/a.go"},
		{"another indentation", link + block("func A() {\none()"), "block 1: is not in ../a/a.go"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := libraryProblems(root, tt.page)
			if tt.want == "" {
				none(t, problems)
				return
			}
			exactly(t, problems, tt.want)
		})
	}
}

// TestLibraryGet runs the commands of the page as a stranger does, in a module of its own that imports
// a package: it compiles afterwards. The project's address on the network is this repository.
func TestLibraryGet(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "HEAD").CombinedOutput(); err != nil {
		t.Skipf("git rev-parse: %v: %s", err, out) // an exported archive
	}
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(fixture(t, map[string]string{
		"stranger/go.mod":  "module example.org/stranger\n\ngo 1.26.0\n",
		"stranger/main.go": "package main\n\nimport \"" + modulePath + "/csr\"\n\nfunc main() { csr.Decide(nil) }\n",
	}), "stranger")
	environment := []string{"GOWORK=off", "GOFLAGS=", "GOPROXY=off", "GOSUMDB=off", "CGO_ENABLED=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + root + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + modulePath}
	commands := 0
	for _, block := range blocks(readFile(t, "docs/library.md")) {
		if block.language != "sh" {
			continue
		}
		commands++
		cmd := exec.Command("bash", "-ec", block.text)
		cmd.Dir, cmd.Env = stranger, append(os.Environ(), environment...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", block.text, err, out)
		}
	}
	if commands != 1 {
		t.Errorf("%d blocks of commands, want 1", commands)
	}
	golang(t, stranger, environment, "vet", "./...")
}

var blockOrLink = regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n|\\]\\(([^)]*\\.go)\\)")

func libraryProblems(root, page string) (blocks int, problems []string) {
	file := ""
	for _, found := range blockOrLink.FindAllStringSubmatch("\n"+page, -1) {
		if found[2] != "" {
			file = found[2]
			continue
		}
		blocks++
		wrong := func(reason string) {
			problems = append(problems, "docs/library.md: block "+strconv.Itoa(blocks)+": "+reason)
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path.Join("docs", file))))
		switch {
		case file == "":
			wrong("no link to its file before it")
		case err != nil:
			wrong("nothing is at " + file)
		case !standsIn(string(text), found[1]):
			wrong("is not in " + file)
		}
	}
	if blocks == 0 {
		problems = append(problems, "docs/library.md: no blocks of Go")
	}
	return blocks, problems
}

// standsIn reports whether code is whole lines of a file, each with the same further tabs.
func standsIn(file, code string) bool {
	for tabs := ""; len(tabs) < 4; tabs += "\t" {
		var indented strings.Builder
		for line := range strings.Lines(code + "\n") {
			if line != "\n" {
				indented.WriteString(tabs)
			}
			indented.WriteString(line)
		}
		if strings.Contains("\n"+file, "\n"+indented.String()) {
			return true
		}
	}
	return false
}
