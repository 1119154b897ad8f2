package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestModules holds the table of Kubernetes' modules in the documentation against go.mod and
// go137.mod, and the releases of the servers against the tests'.
func TestModules(t *testing.T) {
	doc := read(t, "doc.go")
	rows := regexp.MustCompile(`(?m)^//\t(\S+) +(v\S+)  (v\S+)$`).FindAllStringSubmatch(doc, -1)
	if len(rows) != 4 {
		t.Fatalf("doc.go has %d modules, want 4", len(rows))
	}
	for i, file := range []string{"go.mod", "go137.mod"} {
		for _, row := range rows {
			if required := version(t, file, row[1]); required != row[i+2] {
				t.Errorf("doc.go has %s %s, %s %s", row[1], row[i+2], file, required)
			}
		}
	}
	for _, row := range rows[:3] {
		if get := row[1] + "@" + row[2]; !strings.Contains(doc, get) {
			t.Errorf("doc.go does not have %s", get)
		}
	}
	servers, err := filepath.Glob("../test/kubernetes/go*.mod")
	if err != nil || len(servers) < 3 {
		t.Fatalf("%q, %v: the search has lost some", servers, err)
	}
	for _, file := range servers {
		if release := version(t, file, "k8s.io/kubernetes"); !strings.Contains(doc, release) {
			t.Errorf("doc.go does not have the servers' release, %s", release)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// version is that of a module in a go.mod.
func version(t *testing.T, file, module string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` (v\S+)`).FindStringSubmatch(read(t, file))
	if m == nil {
		t.Fatalf("%s requires no version of %s", file, module)
	}
	return m[1]
}
