package house_test

import (
	"encoding/json"
	"io/fs"
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

// libraries are the folders of the modules with packages that users import; the core is the first.
var libraries = []string{".", "attest/tpm/goattestation", "kube", "kube/boundtokens/grpc", "externalsigner"}

// TestDependencies: SECURITY.md names, for each module that users import, its requirements of
// others, and nothing else; and each of them is imported by more than tests: what only tests
// need is required by module test, or else every user's module graph has it.
func TestDependencies(t *testing.T) {
	rows := map[string]string{"core": ".", "`vectors`": "vectors"}
	for _, module := range libraries[1:] {
		rows["`"+module+"`"] = module
	}
	none(t, dependencyProblems(t, ".", rows))
}

// TestGoAttestationApart: no other module requires go-attestation, indirectly neither, so that only who
// asks for attest/tpm/goattestation gets it. Module go-tpm-tools names it in its own go.mod.
func TestGoAttestationApart(t *testing.T) {
	modules, problems := requiredBy(t, ".", "github.com/google/go-attestation")
	none(t, problems)
	if modules < 8 {
		t.Errorf("%d modules: the search has lost some", modules)
	}
}

func TestGoAttestationApartBites(t *testing.T) {
	root := fixture(t, map[string]string{
		"attest/tpm/goattestation/go.mod": "require github.com/google/go-attestation v0.6.4\n",
		"kube/go.mod":                     "require (\n\tgithub.com/google/go-attestation v0.6.4 // indirect\n)\n",
		"other/go137.mod":                 "require github.com/google/go-attestation v0.6.4\n",
	})
	_, problems := requiredBy(t, root, "github.com/google/go-attestation")
	exactly(t, problems, "kube/go.mod requires github.com/google/go-attestation", "other/go137.mod requires")
}

// requiredBy names the go.mod files, but goattestation's own, that require a module, and counts all.
func requiredBy(t *testing.T, root, module string) (modules int, problems []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		file, _ := filepath.Rel(root, name)
		if err != nil || d.IsDir() || filepath.Ext(name) != ".mod" || filepath.ToSlash(file) == "attest/tpm/goattestation/go.mod" {
			return err
		}
		modules++
		if strings.Contains(readFile(t, name), module+" v") {
			problems = append(problems, filepath.ToSlash(file)+" requires "+module)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return modules, problems
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
