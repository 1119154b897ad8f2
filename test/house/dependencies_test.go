package house_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: SECURITY.md names, for each module that users import, its requirements of
// others, and nothing else; and each of them is imported by more than tests: what only tests
// need is required by module test, or else every user's module graph has it.
func TestDependencies(t *testing.T) {
	none(t, dependencyProblems(t, ".", map[string]string{"core": ".", "`kube`": "kube", "`vectors`": "vectors"}))
}

func TestDependenciesBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"SECURITY.md":  "| core | `example.com/a`, `example.com/gone` |\n| other | nothing |\n",
		"a.go":         "package m\n\nimport _ \"example.com/a/part\"\n",
		"a_test.go":    "package m\n\nimport _ \"example.com/b\"\n",
		"other/go.mod": "module other\n",
		"other/b/b.go": "package b\n\nimport _ \"example.com/b\"\n",
	})
	goMod := "module example.com/m\n\ngo 1.26\n\nrequire example.com/a v1.0.0\n\nrequire example.com/b v1.0.0\n\nrequire example.com/c v1.0.0 // indirect\n"
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte(goMod), 0o600); err != nil {
		t.Fatal(err)
	}
	exactly(t, dependencyProblems(t, root, map[string]string{"core": ".", "third": "."}),
		"core: example.com/b is not in SECURITY.md", "core: only tests import example.com/b", "core: SECURITY.md has example.com/gone", "third: no row in SECURITY.md")
}

// dependencyProblems compares the rows of a table, by their first cells, with modules in folders.
func dependencyProblems(t *testing.T, root string, rows map[string]string) (problems []string) {
	t.Helper()
	text, imports := readFile(t, filepath.Join(root, "SECURITY.md")), importsOfModules(t, root)
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		_, cell, found := strings.Cut(text, "\n"+"| "+row+" | ")
		if !found {
			if cell, found = strings.CutPrefix(text, "| "+row+" | "); !found {
				problems = append(problems, row+": no row in SECURITY.md")
				continue
			}
		}
		cell, _, _ = strings.Cut(cell, "\n")
		named := map[string]bool{}
		for _, m := range regexp.MustCompile("`([a-z0-9.]+\\.[a-z]+/[^`]+)`").FindAllStringSubmatch(cell, -1) {
			named[m[1]] = true
		}
		cmd := exec.Command("go", "mod", "edit", "-json")
		cmd.Dir = filepath.Join(root, rows[row])
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Require []struct {
				Path     string
				Indirect bool
			}
		}
		if err := json.Unmarshal(out, &file); err != nil {
			t.Fatal(err)
		}
		for _, r := range file.Require {
			if r.Indirect || strings.HasPrefix(r.Path, modulePath) {
				continue
			}
			if !named[r.Path] {
				problems = append(problems, row+": "+r.Path+" is not in SECURITY.md")
			}
			if !slices.ContainsFunc(imports[rows[row]], func(p string) bool { return isBelow(p, []string{r.Path}) }) {
				problems = append(problems, row+": only tests import "+r.Path)
			}
			delete(named, r.Path)
		}
		for _, m := range slices.Sorted(maps.Keys(named)) {
			problems = append(problems, row+": SECURITY.md has "+m)
		}
	}
	return problems
}

// importsOfModules lists the imports of the modules' code, on any platform and without tests, by
// their folders below root.
func importsOfModules(t *testing.T, root string) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	files, _ := parseAll(t, root)
	for file, f := range files {
		module := path.Dir(file)
		for ; module != "."; module = path.Dir(module) {
			if _, err := os.Stat(filepath.Join(root, module, "go.mod")); err == nil {
				break
			}
		}
		for _, spec := range f.Imports {
			imports[module] = append(imports[module], strings.Trim(spec.Path.Value, `"`))
		}
	}
	return imports
}
