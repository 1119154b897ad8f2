package house_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// released is the version under which a module proxy of a test serves the core module.
const released = "v0.9.9"

// served makes the environment of a go command that gets modules as users do, through a cache
// of its own: the core from a proxy of one module, as it is in this folder, and everything else
// from the module cache.
func served(t *testing.T) []string {
	t.Helper()
	proxy, before := t.TempDir(), strings.TrimSpace(golang(t, ".", nil, "env", "GOMODCACHE"))
	versions := filepath.Join(proxy, filepath.FromSlash(modulePath), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"list": released, released + ".info": `{"Version":"` + released + `"}`, released + ".mod": readFile(t, "go.mod")} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archive, err := os.Create(filepath.Join(versions, released+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(archive)
	for _, name := range ownFiles(t) {
		f, err := w.Create(modulePath + "@" + released + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(readFile(t, name))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return []string{"GOWORK=off", "GOMODCACHE=" + t.TempDir(), "GOPROXY=file://" + proxy + ",file://" + filepath.Join(before, "cache", "download"),
		"GOSUMDB=off", "GOFLAGS=-mod=mod -trimpath -modcacherw -buildvcs=false", "CGO_ENABLED=0"}
}

// ownFiles are the files that the module proxy serves: this folder's module, without
// the modules in it.
func ownFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err) // an exported archive
	}
	files := strings.FieldsFunc(string(out), func(c rune) bool { return c == 0 })
	nested := func(name string) bool {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if slices.Contains(files, dir+"/go.mod") {
				return true
			}
		}
		_, err := os.Stat(name)
		return err != nil // removed, and not committed yet
	}
	return slices.DeleteFunc(files, nested)
}

// golang runs the go command in a folder and returns its output.
func golang(t *testing.T, dir string, environment []string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestServed: a module of a stranger's that imports every public package compiles with the core
// as a proxy serves it, without this folder. And an advisory on the core
// concerns is found in a program that was built so, but not in one without symbols, and not in
// one that was built with a replacement, as for development.
func TestServed(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the module once more, and runs govulncheck")
	}
	environment := served(t)
	imports := ""
	for _, p := range listPackages(t, ".", targets[0]) {
		if p.public() {
			imports += fmt.Sprintf("import _ %q\n", modulePath+"/"+p.path)
		}
	}
	require := "module example.org/stranger\n\ngo 1.26.0\n\nrequire " + modulePath + " " + released + "\n"
	stranger := fixture(t, map[string]string{
		"go.mod":          require,
		"all/all.go":      "package all\n\n" + imports,
		"program/main.go": "package main\n\nimport \"" + modulePath + "/csr\"\n\nfunc main() { csr.Decide(nil) }\n",
	})
	golang(t, stranger, environment, "vet", "./...")

	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		replace, ldflags string
		found            bool
	}{
		"from the proxy":     {"", "-w", true},
		"without symbols":    {"", "-s -w", false},
		"with a replacement": {"\nreplace " + modulePath + " => " + root + "\n", "-w", false},
	} {
		if err := os.WriteFile(filepath.Join(stranger, "go.mod"), []byte(require+c.replace), 0o644); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(t.TempDir(), "program")
		golang(t, stranger, environment, "build", "-ldflags", c.ldflags, "-o", program, "./program")
		out, err := exec.Command("bash", "scripts/advisory.sh", program).CombinedOutput()
		if said := string(out); (err == nil) != c.found || strings.Contains(said, "is found") != c.found || strings.Contains(said, "NOT FOUND") == c.found {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}
