package nodeattest_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: SECURITY.md names, for each module that users import, what it requires of
// others, and nothing else.
func TestDependencies(t *testing.T) {
	none(t, dependencyProblems(t, ".", map[string]string{"core": ".", "`cloud`": "cloud", "`kube`": "kube", "`vectors`": "vectors"}))
}

func TestDependenciesBite(t *testing.T) {
	root := fixture(t, map[string]string{
		"SECURITY.md": "| core | `example.com/a`, `example.com/gone` |\n| other | nothing |\n",
	})
	goMod := "module example.com/m\n\ngo 1.26\n\nrequire example.com/a v1.0.0\n\nrequire example.com/b v1.0.0\n\nrequire example.com/c v1.0.0 // indirect\n"
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte(goMod), 0o600); err != nil {
		t.Fatal(err)
	}
	exactly(t, dependencyProblems(t, root, map[string]string{"core": ".", "third": "."}),
		"core: example.com/b is not in SECURITY.md", "core: SECURITY.md has example.com/gone", "third: no row in SECURITY.md")
}

// dependencyProblems compares the rows of a table, by their first cells, with modules in folders.
func dependencyProblems(t *testing.T, root string, rows map[string]string) (problems []string) {
	t.Helper()
	text := readFile(t, filepath.Join(root, "SECURITY.md"))
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
			delete(named, r.Path)
		}
		for _, m := range slices.Sorted(maps.Keys(named)) {
			problems = append(problems, row+": SECURITY.md has "+m)
		}
	}
	return problems
}
