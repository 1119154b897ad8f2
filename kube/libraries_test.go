package kube

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLibraries checks that importing a library of this module brings no kind of evidence but the
// TPM's: the kinds of package cloud are for the programs, and are handed to the packages as
// interfaces. The programs themselves, for other main functions, are packages as well.
func TestLibraries(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{if ne .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		name, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || strings.Contains(name, "/internal/") || strings.Contains(name, "/kube/program/") {
			continue
		}
		packages++
		for _, other := range []string{"nodeattest/cloud", "smallstep/pkcs7", "veraison/go-cose"} {
			if strings.Contains(deps, other) {
				t.Errorf("%s links %s", name, other)
			}
		}
	}
	if packages < 8 {
		t.Errorf("%d packages:\n%s", packages, out)
	}
}
