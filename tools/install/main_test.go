package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const deploy = "../../kube/deploy"

// TestRender: what observes has no binding that the component enforce has, and what enforces has them and no
// flag --observe. The namespace comes before the objects in it, and no test component is in either.
func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		enforces bool
	}{"observe": {[]string{deploy}, false}, "enforce": {[]string{"-component", "enforce", deploy}, true}} {
		var out, again bytes.Buffer
		if err := run(c.args, &out, os.Stderr); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if got := strings.Contains(text, "parameterNotFoundAction: Deny"); got != c.enforces {
			t.Errorf("%s: the binding that refuses: %t", name, got)
		}
		if got := strings.Contains(text, "--observe"); got == c.enforces {
			t.Errorf("%s: the flag --observe: %t", name, got)
		}
		if !strings.HasPrefix(text, "apiVersion: v1\nkind: Namespace\n") || !strings.Contains(text, "kind: Deployment") {
			t.Errorf("%s: it begins with %.200s", name, text)
		}
		if err := run(c.args, &again, os.Stderr); err != nil || again.String() != text {
			t.Errorf("%s: other bytes the second time, %v", name, err)
		}
	}
}

// TestRefused: a component that is not there and a folder without a kustomization are refused, and nothing is
// printed.
func TestRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"no such file or directory":            {"-component", "gone", deploy},
		"unable to find one of 'kustomization": {t.TempDir()},
		"give one folder":                      {},
	} {
		var out bytes.Buffer
		if err := run(args, &out, os.Stderr); err == nil || !strings.Contains(err.Error(), want) || out.Len() != 0 {
			t.Errorf("%q: %v, want %s, and no output: %s", args, err, want, &out)
		}
	}
}
