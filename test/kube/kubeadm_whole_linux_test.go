package kube

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// wholeNodes is the inventory of the clusters that kubeadm init makes.
var wholeNodes = []string{"control-plane-1", "control-plane-2", "worker-1"}

// TestKubeadmControlPlane goes through docs/kubeadm.md with a control plane of static pods: its first machine, which
// kubeadm init makes, migrates; the cluster enforces; a second one and a worker join with evidence.
func TestKubeadmControlPlane(t *testing.T) {
	t.Parallel()
	w := startWhole(t)
	page := kubeadmPage(t)
	w.deploy(t, wholeNodes)
	first := w.planes[0]
	first.page = page
	w.migrate(t, first)
	w.deploy(t, wholeNodes, "enforce")
	enforced := time.Now()

	second := w.newMachine(t, "control-plane-2")
	second.page = page
	w.joinPlane(t, second)
	worker := w.joinWorker(t, "worker-1")
	w.ready(t, wholeNodes...)
	all := []*member{first, second, worker}
	w.testRenew(t, first)
	remove := "export KUBECONFIG=/etc/kubernetes/admin.conf; " + page.take(t, "Upgrades", "sh")
	first.run(t, remove)
	if os.Getenv(longVar) != "" {
		w.testUpgrade(t, all)
		first.run(t, remove)
	}
	w.checkEvidence(t, enforced)
}

// leavesList waits until a node is no longer on the list of those that are left. While kubeadm's automatic
// approval works, it may approve a request before the controller does: the node then attests once more.
func (m *member) leavesList(t *testing.T, o *operator) {
	t.Helper()
	eventually(t, func() error {
		text := o.run(t, "observed")
		if !regexp.MustCompile(m.name + " +yes").MatchString(text) {
			return nil
		}
		m.run(t, "kubelet-authenticator rotate")
		return fmt.Errorf("after migrate, it is left:\n%s", text)
	})
}

// migrate has a machine that kubeadm made a node without evidence become an attested one.
func (w *wholeCluster) migrate(t *testing.T, m *member) {
	t.Helper()
	m.change = ownCertificate
	m.install(t, "", daemonFiles)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out bytes.Buffer
	migrate := m.command(ctx, "kubelet-authenticator migrate 2>&1")
	migrate.Stdout = &out
	if err := migrate.Start(); err != nil {
		t.Fatal(err)
	}
	o := w.newOperator(t)
	o.run(t, "approve "+m.name+" --machine "+m.pendingMachine(t, o)+" --existing-node")
	if err := migrate.Wait(); err != nil {
		t.Fatalf("migrate: %v: %s\n%s", err, out.Bytes(), m.log("kubelet"))
	}
	m.alive(t, time.Now())
	m.leavesList(t, o)
}

// joinWorker has a new machine join with evidence.
func (w *wholeCluster) joinWorker(t *testing.T, name string) *member {
	t.Helper()
	m := w.newMachine(t, name)
	w.kubectl(t) // for the CA of discovery
	m.page = partOfPage(t, "kubeadm.md", "sh")
	began := time.Now()
	m.joins(t, w.planes[0].token(t), containerdSocket)
	m.alive(t, began)
	return m
}

// joinPlane has a machine join the control plane, by the commands of the page.
func (w *wholeCluster) joinPlane(t *testing.T, m *member) {
	t.Helper()
	m.importKubernetes(t, controlplane.Binaries(t))
	first := w.planes[0]
	token := first.token(t)
	m.install(t, token, daemonFiles)
	m.install(t, token, kubeletFiles)
	words := strings.Fields(first.run(t, m.page.take(t, "The first machine", "sh")))
	const ignore = "--ignore-preflight-errors="
	join := strings.NewReplacer("kubeadm join ...", "kubeadm join "+w.address()+" --token "+token+" --discovery-token-ca-cert-hash "+pin(w.ca),
		" KEY", " "+words[len(words)-1], ignore, ignore+"SystemVerification,ImagePull,").Replace(m.page.take(t, "Join the control plane", "sh"))
	began := time.Now()
	m.run(t, join)
	m.alive(t, began)
	w.planes = append(w.planes, m)
}

// testRenew: on a machine of the control plane, kubeadm renews its certificates, and leaves the kubelet's alone.
func (w *wholeCluster) testRenew(t *testing.T, m *member) {
	const files = "sha256sum /etc/kubernetes/kubelet.conf /var/lib/kubelet-authenticator/client.pem " +
		"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
	before := m.run(t, files)
	m.kubeadm(t, "certs renew all")
	if now := m.run(t, files); now != before {
		t.Errorf("certs renew leaves\n%s\nof\n%s", now, before)
	}
	began := time.Now()
	// As kubeadm says: its pods start again.
	m.run(t, "mkdir /run/stopped; mv /etc/kubernetes/manifests/* /run/stopped/; sleep 20; mv /run/stopped/* /etc/kubernetes/manifests/")
	m.eventually(t, func() error {
		return m.command(t.Context(), "kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw /readyz").Run()
	})
	m.alive(t, began)
	m.run(t, "kubelet-authenticator rotate")
	m.alive(t, time.Now())
}

// upgradeBindings are kubeadm's, which have kube-controller-manager approve requests without evidence.
var upgradeBindings = []string{"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"}

// testUpgrade upgrades the cluster to another release: its first machine by upgrade apply.
func (w *wholeCluster) testUpgrade(t *testing.T, all []*member) {
	const release = "v1.37.2"
	folder := controlplane.BinariesOf(t, release)
	command := "upgrade apply " + release + " --yes --skip-phases=addon"
	for _, m := range all {
		began := time.Now()
		before := m.run(t, "cat /etc/kubernetes/kubelet.conf")
		if slices.Contains(w.planes, m) {
			m.importKubernetes(t, folder)
		}
		m.run(t, "ln -sf "+folder+"/kubeadm /usr/bin/kubeadm")
		const ignore = " --ignore-preflight-errors=SystemVerification,ImagePull,CreateJob,CoreDNSUnsupportedPlugins,CoreDNSMigration"
		m.kubeadm(t, command+ignore)
		now := m.run(t, "cat /etc/kubernetes/kubelet.conf")
		t.Logf("%s: kubeadm %s after %s; kubelet.conf is the same: %t", m.name, command, time.Since(began).Round(time.Second), now == before)
		if !strings.Contains(now, "command: /usr/local/bin/kubelet-authenticator") {
			t.Errorf("%s: kubeadm leaves\n%s", m.name, now)
		}
		m.run(t, "ln -sf "+folder+"/kubelet /usr/bin/kubelet; ln -sf "+folder+"/kubectl /usr/bin/kubectl; systemctl restart kubelet")
		m.alive(t, time.Now())
		m.run(t, "kubelet-authenticator rotate")
		m.alive(t, time.Now())
		command = "upgrade node"
	}
	for _, name := range upgradeBindings {
		if err := w.admin.Get(t.Context(), client.ObjectKey{Name: name}, new(rbacv1.ClusterRoleBinding)); err != nil {
			t.Errorf("after the upgrade: %v", err)
		}
	}
}

// checkEvidence holds that every request for a node's certificate since a time came with evidence.
func (w *wholeCluster) checkEvidence(t *testing.T, since time.Time) {
	t.Helper()
	all := w.requests(t)
	for i := range all {
		request := &all[i]
		if request.CreationTimestamp.After(since) && request.Spec.SignerName == csr.SignerKubeAPIServerClientKubelet && !bytes.Contains(request.Spec.Request, []byte("ATTESTATION")) {
			t.Errorf("%s asks for a certificate without evidence, as %s", request.Name, request.Spec.Username)
		}
	}
	t.Logf("%d requests", len(all))
}
