package nodeattest_test

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the import graph in CONTRIBUTING.md again")

// The graph stands between these lines of CONTRIBUTING.md.
const (
	graphStart = "<!-- import graph: go test -run TestImportGraph -update . -->\n```text\n"
	graphEnd   = "```\n"
)

// everywhere names the packages that any other may import. The graph leaves them out.
var everywhere = []string{"refusal", "secret"}

// TestImportGraph holds the import graph in CONTRIBUTING.md against the imports that are
// there: one that is new is seen in a change. Which ones may be is said in .golangci.yml.
func TestImportGraph(t *testing.T) {
	const file = "CONTRIBUTING.md"
	text := readFile(t, file)
	before, rest, ok := strings.Cut(text, graphStart)
	graph, after, closed := strings.Cut(rest, graphEnd)
	if !ok || !closed {
		t.Fatalf("%s has no import graph after the line %q", file, graphStart)
	}
	want := importGraph(listPackages(t, ".", targets[0]))
	if graph == want {
		return
	}
	if !*update {
		t.Fatalf("%s has another import graph than the code; go test -run TestImportGraph -update . writes it:\n%s", file, want)
	}
	if err := os.WriteFile(file, []byte(before+graphStart+want+graphEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestImportGraphBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"doc.go":              "package nodeattest\n",
		"refusal/r.go":        "package refusal\n",
		"oid/oid.go":          "package oid\nimport _ \"" + modulePath + "/refusal\"\n",
		"jws/jws.go":          "package jws\n",
		"csr/csr.go":          "package csr\nimport (\n_ \"strings\"\n_ \"" + modulePath + "/oid\"\n_ \"" + modulePath + "/internal/der\"\n)\n",
		"csr/csr_test.go":     "package csr\nimport _ \"" + modulePath + "/attest\"\n",
		"attest/attest.go":    "package attest\nimport (\n_ \"" + modulePath + "/csr\"\n_ \"" + modulePath + "/oid\"\n)\n",
		"internal/der/der.go": "package der\n",
	})
	const want = "" +
		"attest        csr oid\n" +
		"csr           internal/der oid\n" +
		"internal/der\n" +
		"jws\n" +
		"oid\n"
	if got := importGraph(listPackages(t, root, targets[0])); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// importGraph is one line for each package, with what it imports of this module. A package
// stands above all that it imports.
func importGraph(packages []goPackage) string {
	imports := make(map[string][]string)
	width := 0
	for _, p := range packages {
		if p.path != "." && !slices.Contains(everywhere, p.path) {
			imports[p.path] = slices.DeleteFunc(p.imports, func(s string) bool { return slices.Contains(everywhere, s) })
			width = max(width, len(p.path))
		}
	}
	heights := make(map[string]int)
	var height func(p string) int
	height = func(p string) int { // the compiler knows that there is no cycle
		if _, ok := heights[p]; !ok {
			heights[p] = 0
			for _, imported := range imports[p] {
				heights[p] = max(heights[p], 1+height(imported))
			}
		}
		return heights[p]
	}
	var paths []string
	for p := range imports {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, func(a, b string) int {
		return cmp.Or(cmp.Compare(height(b), height(a)), cmp.Compare(a, b))
	})
	var out strings.Builder
	for _, p := range paths {
		line := fmt.Sprintf("%-*s  %s", width, p, strings.Join(imports[p], " "))
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}
