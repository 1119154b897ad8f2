package controlplane

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBootstrapNamesItsControllers: without a controller in its configuration the program ends, as it does
// without an API server.
func TestBootstrapNamesItsControllers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "signer.yaml")
	for text, want := range map[string]string{"": "no controllers, want at least one of signer, publisher, cleaner", "controllers: [signer]\n": "no-kubeconfig"} {
		if err := os.WriteFile(path, []byte("apiVersion: config.nodeattest.github.io/v1alpha1\nkind: BootstrapController\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		if status := Bootstrap([]string{"--config", path, "--kubeconfig", "no-kubeconfig"}, &stderr); status != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, want 1 and %q:\n%s", text, status, want, &stderr)
		}
	}
}
