package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCheckTexts: no two checks of this repository have one text, exported or not, in this
// module or another: a text in an error, a vector or a metric names one fact. A check that is
// another's fact is defined as that constant. The text is in kebab-case: a text that is no refusal of
// input, but the state of a resource, is no check.
func TestCheckTexts(t *testing.T) {
	none(t, checkTextProblems(t, "."))
}

func TestCheckTextsBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"oid/oid.go":             "package oid\n\nimport \"" + modulePath + "/refusal\"\n\nconst CheckSize refusal.Check = \"oid-size\"\n\nconst (\n\tcheckText refusal.Check = \"text\"\n\tcheckSame = checkText\n\tmost = \"text\"\n)\n",
		"oid/oid_test.go":        "package oid\n\nimport \"" + modulePath + "/refusal\"\n\nconst checkOfATest refusal.Check = \"text\"\n",
		"csr/csr.go":             "package csr\n\nimport r \"" + modulePath + "/refusal\"\n\ntype Check = r.Check\n\nconst CheckText Check = \"text\"\n",
		"csr/other.go":           "package csr\n\nimport \"" + modulePath + "/oid\"\n\nconst CheckSize = oid.CheckSize\n",
		"kube/internal/a/a.go":   "package a\n\nimport \"" + modulePath + "/refusal\"\n\nconst checkSize = refusal.Check(\"oid-size\")\n\nconst checkCase refusal.Check = \"Not kebab\"\n",
		"refusal/refusal.go":     "package refusal\n\ntype Check string\n\nconst CheckConfig Check = \"configuration\"\n\nconst ErrRetry Check = \"try again\"\n",
		"jws/jws.go":             "package jws\n\ntype Check string\n\nconst CheckText Check = \"text\"\n",
		"jws/testdata/ignore.go": "package ignore\n\nimport \"" + modulePath + "/refusal\"\n\nconst CheckText refusal.Check = \"text\"\n",
	})
	exactly(t, checkTextProblems(t, root),
		`"Not kebab" of kube/internal/a.checkCase`,
		`"oid-size" is that of kube/internal/a.checkSize and of oid.CheckSize`,
		`"text" is that of csr.CheckText and of oid.checkText`,
	)
}

// A namedCheck is a constant of type refusal.Check with a text of its own.
type namedCheck struct{ text, name string }

func checkTextProblems(t *testing.T, root string) []string {
	t.Helper()
	found := namedChecks(t, root)
	slices.SortFunc(found, func(a, b namedCheck) int { return strings.Compare(a.text+"\x00"+a.name, b.text+"\x00"+b.name) })
	var problems []string
	for n, c := range found {
		if strings.Trim(c.text, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" && !strings.HasSuffix(c.name, ".ErrRetry") {
			problems = append(problems, strconv.Quote(c.text)+" of "+c.name+" is not in kebab-case")
		}
		if n > 0 && found[n-1].text == c.text {
			problems = append(problems, strconv.Quote(c.text)+" is that of "+found[n-1].name+" and of "+c.name)
		}
	}
	return problems
}

// namedChecks reads the checks of a repository.
func namedChecks(t *testing.T, root string) (found []namedCheck) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() {
			if name == "testdata" || strings.HasPrefix(name, ".") && path != root {
				return filepath.SkipDir
			}
			checks, err := checksOf(root, path)
			found = append(found, checks...)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("no checks found")
	}
	return found
}

// checksOf reads the checks of the package in a folder. Its type is known by its name: Check
// of package refusal, or an alias of it in the package.
func checksOf(root, dir string) ([]namedCheck, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return nil, err
	}
	rel = filepath.ToSlash(rel)
	var files []*ast.File
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	aliased := rel == "refusal" || slices.ContainsFunc(files, hasAlias)
	var found []namedCheck
	for _, f := range files {
		isCheck := func(e ast.Expr) bool { return isCheckType(f, e, aliased) }
		for _, spec := range constants(f) {
			for n, value := range spec.Values {
				call, converted := value.(*ast.CallExpr)
				if converted && len(call.Args) == 1 && isCheck(call.Fun) {
					value = call.Args[0]
				} else if !isCheck(spec.Type) {
					continue
				}
				if literal, ok := value.(*ast.BasicLit); ok {
					text, err := strconv.Unquote(literal.Value)
					if err != nil {
						return nil, err
					}
					found = append(found, namedCheck{text, rel + "." + spec.Names[n].Name})
				}
			}
		}
	}
	return found, nil
}

// constants are the specifications of the constants at the top of a file.
func constants(f *ast.File) (specs []*ast.ValueSpec) {
	for _, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				specs = append(specs, s.(*ast.ValueSpec))
			}
		}
	}
	return specs
}

// isCheckType reports whether e is refusal.Check, however it is imported, or Check where that
// is an alias of it, or Check of another package of the repository, whose alias it is.
func isCheckType(f *ast.File, e ast.Expr, aliased bool) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return aliased && e.Name == "Check"
	case *ast.SelectorExpr:
		from, ok := e.X.(*ast.Ident)
		return ok && e.Sel.Name == "Check" && strings.HasPrefix(importedAs(f, from.Name), modulePath+"/")
	}
	return false
}

// hasAlias reports whether a file says type Check = refusal.Check.
func hasAlias(f *ast.File) bool {
	return slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return ok && g.Tok == token.TYPE && slices.ContainsFunc(g.Specs, func(s ast.Spec) bool {
			spec := s.(*ast.TypeSpec)
			return spec.Name.Name == "Check" && spec.Assign.IsValid() && isCheckType(f, spec.Type, false)
		})
	})
}

// importedAs returns the import path of a name in a file.
func importedAs(f *ast.File, name string) string {
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err == nil && (i.Name != nil && i.Name.Name == name || i.Name == nil && path[strings.LastIndex(path, "/")+1:] == name) {
			return path
		}
	}
	return ""
}
