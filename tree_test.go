package nodeattest_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tests of this package look at the repository as a whole. Each is a function
// from a tree of sources to a list of problems. It is run on the repository, where
// the list must be empty, and on small broken trees, where it must not: a check
// that cannot fail proves nothing.

const modulePath = "github.com/nodeattest/nodeattest"

// A sourceFile is one parsed Go file, whatever its build constraints.
type sourceFile struct {
	path      string // slash-separated, relative to the root of the tree
	test      bool
	generated bool
	lines     int
	syntax    *ast.File
}

// A sourcePackage is the Go files of one folder.
type sourcePackage struct {
	dir   string // slash-separated, "." for the root
	files []*sourceFile
}

// A tree is every Go package of one module.
type tree struct {
	root     string
	fset     *token.FileSet
	packages []*sourcePackage // sorted by folder
}

// command reports whether p is a program.
func (p *sourcePackage) command() bool {
	for _, f := range p.files {
		if !f.test {
			return f.syntax.Name.Name == "main"
		}
	}
	return false
}

// public reports whether other modules can import p. The root has no code.
func (p *sourcePackage) public() bool {
	return p.dir != "." && !p.command() && !slices.Contains(strings.Split(p.dir, "/"), "internal")
}

func (tr *tree) line(n ast.Node) int { return tr.fset.Position(n.Pos()).Line }

// loadTree parses all Go files below root. It leaves out testdata, hidden folders
// and nested modules.
func loadTree(t *testing.T, root string) *tree {
	t.Helper()
	tr := &tree{root: root, fset: token.NewFileSet()}
	byDir := make(map[string]*sourcePackage)
	walk(t, root, func(rel string) {
		if path.Ext(rel) != ".go" || slices.Contains(strings.Split(rel, "/"), "testdata") {
			return
		}
		dir := path.Dir(rel)
		if byDir[dir] == nil {
			byDir[dir] = &sourcePackage{dir: dir}
			tr.packages = append(tr.packages, byDir[dir])
		}
		byDir[dir].files = append(byDir[dir].files, parseFile(t, tr.fset, root, rel))
	})
	slices.SortFunc(tr.packages, func(a, b *sourcePackage) int { return strings.Compare(a.dir, b.dir) })
	if len(tr.packages) == 0 {
		t.Fatalf("no Go file below %s", root)
	}
	return tr
}

func parseFile(t *testing.T, fset *token.FileSet, root, rel string) *sourceFile {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(rel)))
	if err != nil {
		t.Fatal(err)
	}
	syntax, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return &sourceFile{
		path: rel, test: strings.HasSuffix(rel, "_test.go"), generated: ast.IsGenerated(syntax),
		lines: bytes.Count(src, []byte("\n")), syntax: syntax,
	}
}

// walk calls visit with every file of the module at root.
func walk(t *testing.T, root string, visit func(rel string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		if d.IsDir() {
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if d.Name() == ".git" || d.Name() == ".cache" || nested == nil {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err == nil && d.Type().IsRegular() && d.Name() != ".git" { // a file in a linked work tree
			visit(filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fixture writes a module whose files are given by path and text.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	all := map[string]string{"go.mod": "module " + modulePath + "\n\ngo 1.26\n"}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// none fails with every problem found.
func none(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// exactly fails unless each wanted text is in a problem of its own, and no problem
// is left over.
func exactly(t *testing.T, problems []string, want ...string) {
	t.Helper()
	left := slices.Clone(problems)
	for _, w := range want {
		i := slices.IndexFunc(left, func(p string) bool { return strings.Contains(p, w) })
		if i < 0 {
			t.Errorf("no problem says %q", w)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, p := range left {
		t.Errorf("unwanted problem: %s", p)
	}
}
