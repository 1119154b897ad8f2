package externalsigner

import (
	"context"
	"crypto/elliptic"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/test/controlplane"
)

// TestFlags: kube-apiserver does not start with a signing endpoint and the flags for key files that kubeadm writes,
// be they empty: a manifest must lose them.
func TestFlags(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), signerFolder(t)
	key := filepath.Join(folder, "key.pem")
	writeKey(t, key, newECDSA(t, elliptic.P256()))
	socket := startSigner(t, folder, map[string]any{"keyFile": key}).socket
	usual := controlplane.NewAuthority(t).APIServer(t, dir, "http://127.0.0.1:1", controlplane.FreePorts(t, 1)[0], controlplane.NewKey(t))
	external := signingFlags(usual, socket)
	for name, flags := range map[string][]string{
		"both files":        append(slices.Clone(usual), "--service-account-signing-endpoint="+socket),
		"an empty key file": append(slices.Clone(external), "--service-account-key-file="),
		"two empty files":   append(slices.Clone(external), "--service-account-key-file=", "--service-account-signing-key-file="),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(controlplane.Binaries(t), "kube-apiserver"), flags...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			text := string(out)
			before, _, refused := strings.Cut(text, "mutually exclusive")
			if err == nil || !refused {
				t.Fatalf("%v, want a refusal of flags that exclude each other:\n%s", err, text[max(0, len(text)-600):])
			}
			t.Logf("%s", text[strings.LastIndex(before, "\n")+1:])
		})
	}
}
