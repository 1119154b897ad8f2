package house_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLibraryPage: each block of Go on the pages for users of the library stands in the file that
// is linked last before it, but for the indentation. Tests compile those files, and run examples.
func TestLibraryPage(t *testing.T) {
	for _, page := range []string{"docs/library.md", "docs/workloads.md", "docs/external-signer.md"} {
		blocks, problems := libraryProblems(".", page, readFile(t, page))
		none(t, problems)
		t.Logf("%s: %d blocks of Go", page, blocks)
	}
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
			_, problems := libraryProblems(root, "docs/page.md", tt.page)
			if tt.want == "" {
				none(t, problems)
				return
			}
			exactly(t, problems, "docs/page.md: "+tt.want)
		})
	}
}

var blockOrLink = regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n|\\]\\(([^)]*\\.go)\\)")

func libraryProblems(root, name, page string) (blocks int, problems []string) {
	file := ""
	for _, found := range blockOrLink.FindAllStringSubmatch("\n"+page, -1) {
		if found[2] != "" {
			file = found[2]
			continue
		}
		blocks++
		wrong := func(reason string) {
			problems = append(problems, name+": block "+strconv.Itoa(blocks)+": "+reason)
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
		problems = append(problems, name+": no blocks of Go")
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
