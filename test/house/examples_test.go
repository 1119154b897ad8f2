package house_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamples: every package has an example whose output go test compares.
func TestExamples(t *testing.T) {
	none(t, exampleProblems(t, withAdapter(t)))
}

// TestSeeds: every fuzz target starts from seeds, without which it tries nothing in an
// ordinary test run.
func TestSeeds(t *testing.T) {
	none(t, seedProblems(t, withAdapter(t)))
}

// withAdapter lists the packages of this module and of those for go-attestation and gRPC.
func withAdapter(t *testing.T) []goPackage {
	t.Helper()
	return slices.Concat(listPackages(t, ".", ""), listPackages(t, "attest/tpm/goattestation", ""), listPackages(t, "kube/boundtokens/grpc", ""), listPackages(t, "externalsigner", ""))
}

func TestExamplesAndSeedsBite(t *testing.T) {
	packages := listPackages(t, fixture(t, map[string]string{
		"oid/oid.go":                  "package oid\n",
		"csr/csr.go":                  "package csr\n",
		"csr/example_test.go":         "package csr\n\nfunc Example() {\n\tprintln()\n\t// Output:\n}\n",
		"jws/jws.go":                  "package jws\n",
		"jws/example_test.go":         "package jws\n\nfunc ExampleMute() {}\n",
		"attest/attest.go":            "package attest\n",
		"attest/example_test.go":      "package attest_test\n\nfunc Example() {\n\t// Unordered output: a\n}\n",
		"attest/fuzz_test.go":         "package attest\n\nimport \"testing\"\n\nfunc FuzzSown(f *testing.F) { f.Add(1) }\nfunc FuzzHelped(f *testing.F) { sow(f) }\nfunc FuzzBare(f *testing.F) { f.Fuzz(nil) }\nfunc sow(f *testing.F) { f.Add(1) }\n",
		"internal/der/der.go":         "package der\n",
		"examples/quickstart/main.go": "package main\n\nfunc main() {}\n",
		"attest/internal/a/a.go":      "package a\n",
		"tpmsim/nothing_example.go":   "package tpmsim\n\n// Example has the name of one.\nfunc Example() {\n\t// Output:\n}\n",
	}), "")
	exactly(t, exampleProblems(t, packages),
		"jws: no example with checked output",
		"oid: no example with checked output",
		"tpmsim: no example with checked output",
	)
	exactly(t, seedProblems(t, packages), "attest: FuzzBare has no seeds")
}

func exampleProblems(t *testing.T, packages []goPackage) []string {
	t.Helper()
	var problems []string
	for _, p := range packages {
		if p.public() && !slices.ContainsFunc(doc.Examples(parseTests(t, p)...), checksOutput) {
			problems = append(problems, p.path+": no example with checked output")
		}
	}
	return problems
}

func checksOutput(e *doc.Example) bool { return e.Output != "" || e.EmptyOutput }

func seedProblems(t *testing.T, packages []goPackage) []string {
	t.Helper()
	var problems []string
	for _, p := range packages {
		for _, file := range parseTests(t, p) {
			for _, decl := range file.Decls {
				fn, ok := decl.(*ast.FuncDecl)
				if ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") && !hasSeeds(fn) {
					problems = append(problems, p.path+": "+fn.Name.Name+" has no seeds")
				}
			}
		}
	}
	return problems
}

// hasSeeds reports whether a fuzz target adds seeds, or hands its *testing.F to a
// function that can.
func hasSeeds(fn *ast.FuncDecl) bool {
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
			found = found || ok && is(sel.X) && sel.Sel.Name == "Add" || slices.ContainsFunc(call.Args, is)
		}
		return true
	})
	return found
}

func parseTests(t *testing.T, p goPackage) []*ast.File {
	t.Helper()
	var files []*ast.File
	fset := token.NewFileSet()
	for _, name := range p.tests {
		file, err := parser.ParseFile(fset, filepath.Join(p.dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}
