package kube

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestReboot has a machine with a recovery certificate start again. A worker's keys are in memory:
// nothing on its disk is the node, and it comes back by its TPM, with the endorsement hierarchy's
// password that the daemon keeps on the disk. With its keys on the disk, as on a machine of the
// control plane, it needs no other server.
func TestReboot(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 1)
	c := startCluster(t)
	c.prepare(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.startOwnSigners(t, c.ownSigning(t, device, "worker-1"))
	m := c.newMember(t, "worker-1", g, device, "signerName: "+csr.SignerKubeAPIServerClientKubelet, "signerName: "+csr.SignerClientTPM, `recoverySigner: ""`, "recoverySigner: "+csr.SignerRecoveryTPM,
		`endorsementPassword: ""`, "endorsementPassword: managed")
	m.cut = m.connect(t, c.address())
	m.put(t, "/etc/kubernetes/pki/ca.crt", 0o644, controlplane.CertificatePEM(c.ca.Cert))
	m.install(t, attesttest.TokenID+"."+tokenSecret, daemonFiles)
	m.run(t, "systemctl enable --now kubelet-authenticator")
	first := m.usable(t)
	if err := c.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + attesttest.TokenID}}); err != nil {
		t.Fatal(err)
	}

	const keys = "grep -rlE 'BEGIN (EC |RSA )?PRIVATE KEY' /etc/kubernetes /var/lib/kubelet-authenticator || true"
	if found := m.run(t, keys); found != "" {
		t.Errorf("keys on the disk: %s", found)
	}
	if kind := m.run(t, "stat -f -c %T /run/kubelet-authenticator/client.pem"); strings.TrimSpace(kind) != "tmpfs" {
		t.Errorf("the keys are on %s", kind)
	}
	const kept = "stat -c '%a %s %n' /var/lib/nodeattest-tpm/*; sha256sum /var/lib/nodeattest-tpm/*"
	password := m.run(t, kept)
	if !strings.HasPrefix(password, "600 33 /var/lib/nodeattest-tpm/endorsement-password\n") {
		t.Errorf("the TPM's password: %s", password)
	}
	m.run(t, "systemctl restart kubelet-authenticator")
	if again := m.usable(t); again != first {
		t.Error("another certificate after a restart of the daemon")
	}
	m.restart(t)
	second := m.usable(t)
	if n := c.filedBy(t, csr.RecoveryUserPrefix+m.name); second == first || n != 2 {
		t.Errorf("%d requests with the recovery certificate, want 2", n)
	}

	if again := m.run(t, kept); again != password {
		t.Errorf("another password after a reboot: %s", again)
	}

	onDisk := readPage(t, "kubeadm.md", "yaml").take(t, "Machines of the control plane", "yaml")
	m.run(t, "cat >>/etc/kubernetes/kubelet-authenticator.yaml <<'end'\n"+onDisk+"end\nsystemctl restart kubelet-authenticator; kubelet-authenticator rotate")
	third := m.usable(t)
	if found := m.run(t, keys); found == "" {
		t.Error("no keys on the disk")
	}
	m.cut()
	m.restart(t)
	if m.usable(t) != third {
		t.Error("another certificate after a reboot, without a server")
	}
}

// restart takes the machine's power away, and gives it back.
func (m *member) restart(t *testing.T) {
	t.Helper()
	m.off(t)
	if err := m.device.Reset(); err != nil {
		t.Fatal(err)
	}
	m.on(t)
}

// usable waits until the machine has the certificates of its configuration, and returns the
// credential of the client's.
func (m *member) usable(t *testing.T) (credential string) {
	t.Helper()
	m.eventually(t, func() error {
		s := m.status(t)
		for _, certificate := range s.Certificates {
			if !certificate.Usable {
				return fmt.Errorf("%w: %+v", errNotYet, certificate)
			}
		}
		credential = s.Certificates[0].CredentialID
		return nil
	})
	return credential
}

// TestLocalhost has a machine start that has no name yet: the daemon ends, systemd starts it again
// and again, and the node comes up by the name that the machine gets later.
func TestLocalhost(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 1)
	c := startJoinable(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c.firstUse(t, device, "worker-1")
	m := c.newMember(t, "localhost", g, device, "nodeName: node-1\n", "\n")
	m.cut = m.connect(t, c.address())
	m.put(t, "/etc/kubernetes/pki/ca.crt", 0o644, controlplane.CertificatePEM(c.ca.Cert))
	m.install(t, attesttest.TokenID+"."+tokenSecret, daemonFiles)
	m.run(t, "systemctl enable kubelet-authenticator")
	m.restart(t)
	restarts := func() int {
		n, err := strconv.Atoi(strings.TrimSpace(m.run(t, "systemctl show -P NRestarts kubelet-authenticator")))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	m.eventually(t, func() error {
		if restarts() < 2 {
			return errNotYet
		}
		return nil
	})
	bootstrap := csr.BootstrapUserPrefix + attesttest.TokenID
	if n := c.filedBy(t, bootstrap); n != 0 {
		t.Errorf("%d requests without a name", n)
	}
	m.run(t, "hostname worker-1")
	m.usable(t)
	if s := m.status(t); s.NodeName != "worker-1" || !s.Daemon {
		t.Errorf("status %+v", s)
	}
	text := string(read(t, filepath.Join(m.dir, "kubelet-authenticator.log")))
	lines, started, filed := strings.Count(text, "\n"), restarts(), c.filedBy(t, bootstrap)
	if !strings.Contains(text, `the host name "localhost"`) || lines > 20 || started > 5 || filed != 2 {
		t.Errorf("%d restarts, %d requests and %d lines:\n%s", started, filed, lines, text)
	}
	t.Logf("%d restarts, %d requests, %d lines", started, filed, lines)
}
