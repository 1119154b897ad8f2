package house_test

import (
	"go/doc"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPageNames: each package.Name and package.Type.Name between backquotes on a page is
// exported by a package of this module or the adapters.
func TestPageNames(t *testing.T) {
	links := docLinks{known: make(map[string]*doc.Package)}
	for _, module := range libraries {
		links.list(t, module)
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md", "SECURITY.md") {
		none(t, links.pageProblems(t, page, readFile(t, page)))
	}
}

func TestPageNamesBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"a/a.go":   "package a\n\n// T is.\ntype T struct{ F int }\n\n// M is.\nfunc (T) M() {}\n\nvar hidden int\n",
		"b/a/a.go": "package a\n\n// Other is in the second package of the name.\nvar Other int\n",
	})
	links := docLinks{known: make(map[string]*doc.Package)}
	links.list(t, root)
	exactly(t, links.pageProblems(t, "page.md", "`a.T`, `a.T.F`, `a.T.M`, `a.Other`, `a.TestSomething`, `strings.Gone`, `c.T`, `a.hidden`, a.Gone,\n`a.Gone`, `a.T.G`"),
		"page.md: no a.Gone", "page.md: no a.T.G")
}

var qualified = regexp.MustCompile("`([a-z0-9]+)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?(?:\\(\\))?`")

// pageProblems lists the names of a page that no package of ours exports.
func (l *docLinks) pageProblems(t *testing.T, page, text string) (problems []string) {
	t.Helper()
	for _, found := range qualified.FindAllStringSubmatch(text, -1) {
		in, recv, name := found[1], found[2], found[3]
		if name == "" {
			recv, name = "", recv
		}
		ours := slices.DeleteFunc(slices.Clone(l.ours), func(p string) bool { return path.Base(p) != in })
		if len(ours) == 0 || strings.HasPrefix(name, "Test") {
			continue
		}
		if !slices.ContainsFunc(ours, func(p string) bool { return l.declares(t, p, recv, name) }) {
			problems = append(problems, page+": no "+strings.Trim(found[0], "`"))
		}
	}
	return problems
}
