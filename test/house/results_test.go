package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoFunctionReturnsAnErrorPointer: a nil *refusal.Error that becomes an error is an error
// that is not nil. So every function of this repository that can refuse returns an error, also
// unexported ones, methods of interfaces and functions without a name.
func TestNoFunctionReturnsAnErrorPointer(t *testing.T) {
	none(t, errorPointerProblems(t, "."))
}

func TestNoFunctionReturnsAnErrorPointerBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"refusal/refusal.go": "package refusal\n\ntype Error struct{}\n\nfunc Retry() error { return nil }\n\nfunc Bad() *Error { return nil }\n",
		"csr/alias.go":       "package csr\n\nimport r \"" + modulePath + "/refusal\"\n\ntype (\n\tError = r.Error\n\tErrors []*Error\n\tfault = Error\n)\n\nfunc all() Errors { return nil }\n",
		"csr/csr.go":         "package csr\n\nimport \"" + modulePath + "/refusal\"\n\nfunc bad() (n int, err *fault) { return }\n\nfunc other(*Error) {}\n\nvar f = func() *refusal.Error { return nil }\n",
		"kube/k/k.go":        "package k\n\nimport \"" + modulePath + "/csr\"\n\ntype Looker interface{ Look() (bool, *csr.Error) }\n",
		"jws/own.go":         "package jws\n\ntype Error struct{}\n\nfunc Own() *Error { return nil }\n",
	})
	exactly(t, errorPointerProblems(t, root),
		"csr/csr.go:5: returns *refusal.Error", "csr/csr.go:9: returns *refusal.Error",
		"kube/k/k.go:5: returns *refusal.Error", "refusal/refusal.go:7: returns *refusal.Error")
}

// refusalNames are the types of a repository that are refusal.Error: "csr.Error".
type refusalNames map[string]bool

// isRefusal reports whether an expression in a package's file is one of them.
func (n refusalNames) isRefusal(f *ast.File, dir string, e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return n[dir+"."+e.Name]
	case *ast.SelectorExpr:
		pkg, ok := e.X.(*ast.Ident)
		return ok && slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool {
			path, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), modulePath+"/")
			name := filepath.Base(path)
			if i.Name != nil {
				name = i.Name.Name
			}
			return ours && name == pkg.Name && n[path+"."+e.Sel.Name]
		})
	}
	return false
}

func errorPointerProblems(t *testing.T, root string) (problems []string) {
	t.Helper()
	files, positions := parseAll(t, root)
	names := refusalNames{"refusal.Error": true}
	for before := 0; before != len(names); { // until no alias of an alias is new
		before = len(names)
		for path, f := range files {
			dir := filepath.ToSlash(filepath.Dir(path))
			ast.Inspect(f, func(node ast.Node) bool {
				if alias, ok := node.(*ast.TypeSpec); ok && alias.Assign.IsValid() && names.isRefusal(f, dir, alias.Type) {
					names[dir+"."+alias.Name.Name] = true
				}
				return true
			})
		}
	}
	if len(names) < 2 {
		t.Fatal("no alias of refusal.Error found")
	}
	for path, f := range files {
		ast.Inspect(f, func(node ast.Node) bool {
			function, ok := node.(*ast.FuncType)
			if !ok || function.Results == nil {
				return true
			}
			for _, result := range function.Results.List {
				if pointer, ok := result.Type.(*ast.StarExpr); ok && names.isRefusal(f, filepath.ToSlash(filepath.Dir(path)), pointer.X) {
					problems = append(problems, strings.TrimPrefix(positions.Position(result.Pos()).String(), root+"/"))
				}
			}
			return true
		})
	}
	for n, p := range problems {
		file, rest, _ := strings.Cut(p, ":")
		line, _, _ := strings.Cut(rest, ":")
		problems[n] = file + ":" + line + ": returns *refusal.Error"
	}
	slices.Sort(problems)
	return problems
}

// parseAll parses the Go files below a folder, tests and testdata aside, by their paths from
// there.
func parseAll(t *testing.T, root string) (map[string]*ast.File, *token.FileSet) {
	t.Helper()
	files, positions := map[string]*ast.File{}, token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") && path != root):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(positions, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		files[filepath.ToSlash(relative)] = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, positions
}

// A shippedFile is a Go file of a module that is released.
type shippedFile struct {
	*ast.File
	name      string
	positions *token.FileSet
}

// shippedFiles parses the files of the released modules, in the order of their names.
func shippedFiles(t *testing.T, root string) (shipped []shippedFile) {
	t.Helper()
	files, positions := parseAll(t, root)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "test/") && !strings.HasPrefix(name, "tools/") {
			shipped = append(shipped, shippedFile{files[name], name, positions})
		}
	}
	return shipped
}

// problem describes a problem with a node, with the file and line.
func (f shippedFile) problem(node ast.Node, what string) string {
	return fmt.Sprintf("%s:%d: %s", f.name, f.positions.Position(node.Pos()).Line, what)
}
