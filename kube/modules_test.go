package kube

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestModules holds the table of Kubernetes' modules in the documentation against go.mod, and
// the release of the servers against the tests'.
func TestModules(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	documented := map[string]string{}
	doc := read("doc.go")
	for _, row := range regexp.MustCompile(`(?m)^//\t(\S+) +(v\S+)$`).FindAllStringSubmatch(doc, -1) {
		documented[row[1]] = row[2]
	}
	required := 0
	for _, row := range regexp.MustCompile(`(?m)^\t((?:k8s\.io/(?:api|apimachinery|client-go)|sigs\.k8s\.io/controller-runtime)) (v\S+)$`).FindAllStringSubmatch(read("go.mod"), -1) {
		required++
		if documented[row[1]] != row[2] {
			t.Errorf("doc.go has %s %q, go.mod %s", row[1], documented[row[1]], row[2])
		}
		if get := row[1] + "@" + row[2]; strings.HasPrefix(row[1], "k8s.io/") && !strings.Contains(doc, get) {
			t.Errorf("doc.go does not have %s", get)
		}
	}
	if required != len(documented) || required != 4 {
		t.Errorf("go.mod requires %d of the %d documented modules, want 4", required, len(documented))
	}
	servers := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(read("../test/kubernetes/go.mod"))
	if servers == nil || !strings.Contains(doc, "Kubernetes\n// "+servers[1]+":") {
		t.Errorf("doc.go does not have the servers' release, %q", servers)
	}
}
