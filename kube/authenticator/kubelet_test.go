package authenticator

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/authenticator/internal/kubelet"
)

// TestGoesAround: the plugin gives a kubelet that goes around it nothing. The daemon and a
// rotation get the certificates that such a kubelet will have when its files are in place, and
// name the problem.
func TestGoesAround(t *testing.T) {
	f := newFakeAPI(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	var log strings.Builder
	a, _ := joined(t, f, func(c *Config) {
		c.Kubelet.ConfigFile, c.Log = path, slog.New(slog.NewTextHandler(&log, nil))
	})
	write := func(text string) {
		t.Helper()
		testkit.MustDo(os.WriteFile(path, []byte(text), 0o600))
	}
	write("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n")
	before := len(f.log)
	if _, err := a.Credential(t.Context()); !errors.Is(err, kubelet.CheckConfiguration) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "set rotateCertificates to false") {
		t.Errorf("Credential: got %v", err)
	}
	if len(f.log) != before || len(a.Status().Problems) != 1 {
		t.Errorf("it went on, or does not say: %+v", a.Status().Problems)
	}
	for range 2 {
		if err := a.Rotate(t.Context()); err != nil {
			t.Errorf("Rotate: got %v", err)
		}
	}
	f.move(a.load(a.slots[0], ClientFile).Renew)
	stop := run(t, a)
	eventually(t, "a renewal", func() bool { return a.load(a.slots[0], ClientFile).Renew.After(f.now()) })
	stop()
	if n := strings.Count(log.String(), "rotateCertificates: true in "+path); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, &log)
	}
	write("{") // half a file: a certificate that works is not held back for it
	obtained(t, a)
}

// TestHostnameOverride has a kubelet call its node by another name: that is a problem to see, and
// no reason to keep the node's certificate from it.
func TestHostnameOverride(t *testing.T) {
	f := newFakeAPI(t)
	for value, want := range map[string]bool{"other.example": true, "Other": true, testNode: false, strings.ToUpper(testNode): false, "": false, "$HOSTNAME": false, "%H": false} {
		file := filepath.Join(t.TempDir(), "kubelet")
		testkit.MustDo(os.WriteFile(file, []byte("KUBELET_EXTRA_ARGS=--hostname-override="+value+"\n"), 0o600))
		a, _ := newNode(t, f, func(c *Config) { c.Kubelet = Kubelet{FlagFiles: []string{file}} })
		problems := strings.Join(a.Status().Problems, "\n")
		if strings.Contains(problems, "--hostname-override=") != want {
			t.Errorf("the kubelet is %q, the certificates are of %s, and status says %q", value, testNode, problems)
		}
		if err := a.kubelet.Check(); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
