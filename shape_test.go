package nodeattest_test

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// TestShape checks what every package owes its readers: examples with checked
// output, fuzz targets that start from seeds, no code that runs on import.
func TestShape(t *testing.T) {
	none(t, shapeProblems(loadTree(t, ".")))
}

func TestShapeBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"oid/oid.go":                "package oid\n",
		"csr/csr.go":                "package csr\n\nfunc init() {}\n",
		"csr/example_test.go":       "package csr\n\nfunc Example() {\n\tprintln()\n\t// Output:\n}\n\nfunc ExampleMute() {}\n",
		"attest/attest.go":          "package attest\n",
		"attest/example_test.go":    "package attest\n\nfunc Example() {\n\t// Unordered output: a\n}\n",
		"attest/fuzz_test.go":       "package attest\n\nimport \"testing\"\n\nfunc FuzzSown(f *testing.F) { f.Add(1) }\nfunc FuzzHelped(f *testing.F) { sow(f) }\nfunc FuzzBare(f *testing.F) { f.Fuzz(nil) }\nfunc sow(f *testing.F) { f.Add(1) }\n",
		"internal/der/der.go":       "package der\n",
		"examples/inspect/main.go":  "package main\n\nfunc main() {}\n",
		"attest/method.go":          "package attest\n\ntype T int\n\nfunc (T) init() {}\n",
		"attest/internal/a/a.go":    "package a\n",
		"tpmsim/nothing_example.go": "package tpmsim\n\n// Example has the name of one.\nfunc Example() {\n\t// Output:\n}\n",
	})
	exactly(t, shapeProblems(loadTree(t, root)),
		"oid: no example with checked output",
		"tpmsim: no example with checked output",
		"csr/csr.go:3: init runs on import",
		"csr/example_test.go:8: ExampleMute does not check its output",
		"attest/fuzz_test.go:7: FuzzBare has no seeds",
	)
}

func shapeProblems(tr *tree) []string {
	var problems []string
	for _, p := range tr.packages {
		checked := false
		for _, f := range p.files {
			for _, decl := range f.syntax.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if !ok || fn.Recv != nil {
					continue
				}
				name := fn.Name.Name
				problem := ""
				switch {
				case !f.test && name == "init":
					problem = "init runs on import"
				case f.test && strings.HasPrefix(name, "Example") && checksOutput(f.syntax, fn):
					checked = true
				case f.test && strings.HasPrefix(name, "Example"):
					problem = name + " does not check its output"
				case f.test && strings.HasPrefix(name, "Fuzz") && !seeded(fn):
					problem = name + " has no seeds"
				}
				if problem != "" {
					problems = append(problems, fmt.Sprintf("%s:%d: %s", f.path, tr.line(fn), problem))
				}
			}
		}
		if p.public() && !checked {
			problems = append(problems, p.dir+": no example with checked output")
		}
	}
	return problems
}

// checksOutput reports whether an example ends with a comment that go test compares
// its output with.
func checksOutput(f *ast.File, fn *ast.FuncDecl) bool {
	for _, c := range f.Comments {
		text := strings.ToLower(strings.TrimSpace(c.Text()))
		if c.Pos() > fn.Pos() && c.End() < fn.End() &&
			(strings.HasPrefix(text, "output:") || strings.HasPrefix(text, "unordered output:")) {
			return true
		}
	}
	return false
}

// seeded reports whether a fuzz target adds seeds, or hands its *testing.F to a
// function that can.
func seeded(fn *ast.FuncDecl) bool {
	if fn.Type.Params.NumFields() != 1 || len(fn.Type.Params.List[0].Names) != 1 {
		return false
	}
	f := fn.Type.Params.List[0].Names[0].Name
	is := func(e ast.Expr) bool {
		id, ok := e.(*ast.Ident)
		return ok && id.Name == f
	}
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			sel, ok := call.Fun.(*ast.SelectorExpr)
			found = found || ok && is(sel.X) && sel.Sel.Name == "Add"
			for _, arg := range call.Args {
				found = found || is(arg)
			}
		}
		return true
	})
	return found
}
