package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// show writes flags for a comparison.
func show(f *Flags) string {
	text := f.Bootstrap
	if f.Rotate != nil {
		text += fmt.Sprint(" ", *f.Rotate)
	}
	if f.Serve != nil {
		text += fmt.Sprint(" serving ", *f.Serve)
	}
	return text
}

// TestArguments reads arguments as the kubelet does.
func TestArguments(t *testing.T) {
	for line, want := range map[string]string{
		"kubelet":                                                      "",
		"kubelet --kubeconfig=/k":                                      "",
		"kubelet --bootstrap-kubeconfig=/b":                            "/b",
		"kubelet --bootstrap-kubeconfig /b":                            "/b",
		"kubelet --bootstrap_kubeconfig=/b":                            "/b",
		"kubelet --bootstrap-kubeconfig=":                              "",
		"kubelet --bootstrap-kubeconfig=/b --bootstrap-kubeconfig=":    "",
		"kubelet --bootstrap-kubeconfig":                               "",
		"kubelet -- --bootstrap-kubeconfig=/b":                         "",
		"kubelet --rotate-certificates":                                " true",
		"kubelet --rotate_certificates=true":                           " true",
		"kubelet --rotate-certificates=false":                          " false",
		"kubelet --rotate-certificates --rotate-certificates=false":    " false",
		"kubelet --rotate-server-certificates":                         " serving true",
		"kubelet --rotate-certificates --rotate_server_certificates=f": " true serving false",
	} {
		t.Run(line, func(t *testing.T) {
			if got := show(parseFlags(strings.Fields(line))); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestReadFlags reads environment files and units.
func TestReadFlags(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"kubeadm's unit":      {"[Service]\nEnvironment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/b --kubeconfig=/k\"\n", "/b"},
		"in a comment":        {"# --bootstrap-kubeconfig=/b\n; --rotate-certificates\n", ""},
		"an environment file": {"KUBELET_KUBEADM_ARGS=\"--v=2 --rotate-certificates\"\n", " true"},
		"two in one line":     {"Environment=\"A=--v=2\" \"B=--rotate-certificates=false\"\n", " false"},
		"with a space":        {"X='--bootstrap-kubeconfig /b'\n", "/b"},
		"quoted":              {"X=--bootstrap-kubeconfig=\"/b\"\n", "/b"},
		"empty":               {"X=\"--bootstrap-kubeconfig= --kubeconfig=/k\"\n", ""},
		"on the next line":    {"ExecStart=/usr/bin/kubelet -- \\\n --kubeconfig=/k \\\n --bootstrap-kubeconfig=/b\n", "/b"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "flags")
			testkit.MustDo(os.WriteFile(path, []byte(row.text), 0o600))
			f := testkit.Must(ReadFlags(path))
			if got := show(f); got != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
	if f, err := ReadFlags(filepath.Join(t.TempDir(), "none")); err != nil || show(f) != "" {
		t.Errorf("no file: got %+v, %v", f, err)
	}
}

func FuzzFlags(f *testing.F) {
	f.Add("Environment=\"X=--bootstrap-kubeconfig=/b --rotate-certificates\"\n")
	f.Add("--bootstrap_kubeconfig '/b'")
	f.Fuzz(func(t *testing.T, text string) {
		for _, words := range [][]string{wordsOf([]byte(text)), strings.Fields(text)} {
			if f := parseFlags(words); strings.Contains(f.Bootstrap, "\n") {
				t.Errorf("got %+v", f)
			}
		}
	})
}
