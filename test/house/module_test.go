package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tests of this package look at the module as a whole, and at what no linter does.
// Each is a function from a folder with a module to a list of problems. It is run on
// the repository, where the list must be empty, and on small broken modules, where it
// must not: a check that cannot fail proves nothing.

// TestMain runs the tests in the root of the repository.
func TestMain(m *testing.M) {
	if err := os.Chdir(filepath.Join("..", "..")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const modulePath = "github.com/nodeattest/nodeattest"

// targets are the platforms that `make cross` builds for.
var targets = []string{"linux/amd64", "linux/arm64", "windows/amd64", "darwin/arm64"}

// A goPackage is a package of the module, as the go command lists it.
type goPackage struct {
	path  string // below the module's, "." for the root
	name  string
	dir   string
	deps  []string // all packages that are linked in, by import path
	tests []string // the test files' names
}

// public reports whether other modules can import p. The root and cloud have no code.
func (p goPackage) public() bool {
	return p.path != "." && p.path != "cloud" && p.name != "main" && !slices.Contains(strings.Split(p.path, "/"), "internal")
}

// listPackages asks for the packages of the module at root, sorted by path.
func listPackages(t *testing.T, root, target string) []goPackage {
	t.Helper()
	const format = `{{.ImportPath}};{{.Name}};{{.Dir}};{{join .Deps ","}};{{join .TestGoFiles ","}},{{join .XTestGoFiles ","}}`
	// -e: the imports of a fixture need not exist.
	out, err := goCommand(root, target, "list", "-e", "-f", format, "./...")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var packages []goPackage
	for line := range strings.Lines(out) {
		field := strings.Split(strings.TrimSpace(line), ";")
		if len(field) != 5 {
			t.Fatalf("go list says %q", line)
		}
		list := func(i int) []string { return slices.DeleteFunc(strings.Split(field[i], ","), isEmpty) }
		p := goPackage{path: ownPath(field[0]), name: field[1], dir: field[2], deps: list(3), tests: list(4)}
		packages = append(packages, p)
	}
	return packages
}

func isEmpty(s string) bool { return s == "" }

// ownPath is a package's path below the module's, or empty for one of another module.
func ownPath(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	own, ok := strings.CutPrefix(importPath, modulePath+"/")
	if !ok {
		return ""
	}
	return own
}

// goCommand runs the go command in root, for a platform and without cgo where target is
// not empty.
func goCommand(root, target string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = cmd.Environ()
	if target != "" {
		goos, goarch, _ := strings.Cut(target, "/")
		cmd.Env = append(cmd.Env, "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// fixture writes a module whose files are given by path and text.
func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module "+modulePath+"\n\ngo 1.26\n")
	for name, text := range files {
		write(name, text)
	}
	return root
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// none fails with every problem found.
func none(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// exactly fails unless each wanted text is in a problem of its own, and no problem is
// left over.
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
