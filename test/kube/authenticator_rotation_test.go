package kube

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// rotationVar has TestRotation watch for longer than its two and a half minutes: a duration.
const rotationVar = "NODEATTEST_ROTATION"

// TestRotation has certificates that last 90 s renewed by a daemon: two requests for each,
// and the plugin always at hand. The control plane goes away until the last one has ended,
// the bootstrap token with it; with a fresh token in its place the node comes back.
func TestRotation(t *testing.T) {
	watched := 150 * time.Second
	if text := os.Getenv(rotationVar); text != "" {
		var err error
		if watched, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	program := buildProgram(t, "kubelet-authenticator")
	c := startCluster(t)
	c.signingDuration = "90s"
	c.prepare(t)
	c.startSigner(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	m := c.install(t, program, "node-1", device, func(config map[string]any) { config["lifetime"] = "10m" }) // the API takes no less
	node, bootstrap := csr.NodeUserPrefix+m.name, csr.BootstrapUserPrefix+attesttest.TokenID

	t.Run("renewed by the daemon", func(t *testing.T) {
		c.attestedPlane(t, device)
		daemon := startAs(t, "daemon", program, m.dir, "--config", m.config, "daemon")
		certificates, slowest := map[string]bool{}, time.Duration(0)
		for began := time.Now(); time.Since(began) < watched; time.Sleep(3 * time.Second) {
			ran := time.Now()
			_, pair := m.credential(t)
			if took := time.Since(ran); len(certificates) != 0 {
				slowest = max(slowest, took)
			}
			if time.Now().After(pair.Leaf.NotAfter) {
				t.Errorf("a certificate that ended at %s", pair.Leaf.NotAfter)
			}
			certificates[csr.CredentialID(pair.Leaf)] = true
		}
		if n := c.filedBy(t, node); n > 2*(len(certificates)-1)+2 || c.filedBy(t, bootstrap) != 2 || len(certificates) < int(watched/(80*time.Second)) {
			t.Errorf("%d certificates with %d requests as the node and %d with the token", len(certificates), n, c.filedBy(t, bootstrap))
		}
		t.Logf("%d certificates in %s, %d requests; a run of the plugin took %s at most", len(certificates), watched, c.filedBy(t, node)+c.filedBy(t, bootstrap), slowest.Round(time.Millisecond))
		daemon.stop(t)
	})

	// Nobody decides any more, and the token is gone.
	startAs(t, "daemon-2", program, m.dir, "--config", m.config, "daemon")
	if err := c.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + attesttest.TokenID}}); err != nil {
		t.Fatal(err)
	}
	before := c.filedBy(t, node)
	_, last := m.credential(t)
	for time.Now().Before(last.Leaf.NotAfter.Add(-5 * time.Second)) {
		if _, pair := m.credential(t); csr.CredentialID(pair.Leaf) != csr.CredentialID(last.Leaf) {
			t.Fatal("another certificate, and nobody has signed it")
		}
		time.Sleep(3 * time.Second)
	}
	time.Sleep(time.Until(last.Leaf.NotAfter) + time.Second)
	if n := c.filedBy(t, node) - before; n > 3 {
		t.Errorf("%d requests while nobody decided", n)
	}
	if s := m.status(t); s.Usable || !s.Daemon {
		t.Errorf("status %+v", s)
	}

	t.Run("back with a fresh token", func(t *testing.T) {
		c.attestedPlane(t, device)
		m.kubeconfig(t, "bootstrap", new(clientcmdapi.AuthInfo))
		if s := m.status(t); len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "fresh token") {
			t.Errorf("problems %q", s.Problems)
		}
		m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: otherTokenID + "." + tokenSecret})
		began := time.Now()
		_, pair := m.credential(t) // it waits
		t.Logf("back after %s with a certificate until %s", time.Since(began).Round(100*time.Millisecond), pair.Leaf.NotAfter)
	})
}
