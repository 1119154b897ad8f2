package house_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPageLinks: each link of a page within the repository leads to a file, one with a fragment to a
// heading, and one that is named after an example to a file that has it.
func TestPageLinks(t *testing.T) {
	pages := 0
	err := filepath.WalkDir(".", func(page string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == "testdata" || name == ".git" || name == ".cache") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(page, ".md") {
			pages++
			none(t, linkProblems(".", filepath.ToSlash(page), readFile(t, page)))
		}
		return nil
	})
	if err != nil || pages < 10 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

func TestPageLinksBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"csr/csr.go":          "package csr\n",
		"csr/example_test.go": "package csr\n\nfunc ExampleParse() {\n}\n",
		"docs/page.md":        "# A page's `title`, 1\n\n## Second\n",
	})
	exactly(t, linkProblems(root, "README.md", "[a](https://example.com) [`csr`](csr) [`gone`](gone)\n[`ExampleParse`](csr/example_test.go), [`ExamplePar`](csr/example_test.go)"),
		"README.md: nothing is at gone", "README.md: ExamplePar is not in csr/example_test.go")
	exactly(t, linkProblems(root, "docs/page.md", "# Own\n[a](page.md#a-pages-title-1) [b](page.md#third) [c](../csr) [d](#own) [e](#none) [f](csr)"),
		"docs/page.md: no heading third in page.md", "docs/page.md: no heading none in docs/page.md", "docs/page.md: nothing is at csr")
}

var link = regexp.MustCompile("\\[`?([^]`]*)`?\\]\\(([^): ]*)\\)")

func linkProblems(root, page, text string) (problems []string) {
	for _, found := range link.FindAllStringSubmatch(text, -1) {
		name, to := found[1], found[2]
		to, fragment, _ := strings.Cut(to, "#")
		linked := []byte(text)
		if to != "" {
			file := filepath.Join(root, filepath.FromSlash(path.Join(path.Dir(page), to)))
			if _, err := os.Stat(file); err != nil {
				problems = append(problems, page+": nothing is at "+to)
				continue
			}
			linked, _ = os.ReadFile(file) // a folder has no text
		} else {
			to = page
		}
		if fragment != "" && !hasHeading(string(linked), fragment) {
			problems = append(problems, page+": no heading "+fragment+" in "+to)
		}
		if strings.HasPrefix(name, "Example") && !strings.Contains(string(linked), "\nfunc "+name+"()") {
			problems = append(problems, page+": "+name+" is not in "+to)
		}
	}
	return problems
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInIDs = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// hasHeading reports whether a page has a heading whose identifier, as GitHub makes it, is id.
func hasHeading(page, id string) bool {
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		if strings.ReplaceAll(notInIDs.ReplaceAllString(strings.ToLower(found[1]), ""), " ", "-") == id {
			return true
		}
	}
	return false
}
