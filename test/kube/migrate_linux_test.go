package kube

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestMigrate has the command migrate a node that joined without evidence, in a cluster that observes: first
// without an operator, which changes nothing, then to its end. Then the cluster enforces.
func TestMigrate(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 1)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c, _ := kubeadmCluster(t, "1h")
	const pair = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	m := c.newMember(t, "worker-1", g, device, `token: ""`, "client-certificate: "+pair+"\n      client-key: "+pair)
	runtime := startRuntime(t, m.dir)
	m.installKubeadm(t)
	m.cut = m.connect(t, c.address())
	token := m.upload(t)
	m.controller = c.deploy(t, device, m.name)
	began := time.Now()
	m.kubeadmJoin(t, token, runtime, "kubeadm join ... --ignore-preflight-errors=FileAvailable--etc-kubernetes-kubelet.conf")
	m.alive(t, began)
	m.install(t, "", daemonFiles)

	const kubelets = "cd /; sha256sum /etc/kubernetes/kubelet.conf /etc/kubernetes/kubelet-authenticator.conf /usr/lib/systemd/system/kubelet.service.d/*; ls -A /etc/kubernetes /etc/systemd/system /var/lib/kubelet/pki; systemctl show -P MainPID kubelet"
	plain := m.run(t, kubelets)
	if out, err := m.command(t.Context(), "kubelet-authenticator migrate --timeout 5s 2>&1").CombinedOutput(); err == nil || !strings.Contains(string(out), "kubectl nodeattest approve worker-1") {
		t.Errorf("no operator: %v: %s", err, out)
	}
	if now := m.run(t, kubelets); now != plain {
		t.Errorf("without an operator, the node is\n%s\nand was\n%s", now, plain)
	}

	o := c.newOperator(t)
	var machine string
	m.eventually(t, func() error {
		out, err := o.try(t.Context(), "pending")
		found := regexp.MustCompile(`(?m)^\S+ +worker-1 +(ek:sha256:\S+)`).FindStringSubmatch(out)
		if err != nil || found == nil {
			return errors.Join(errNotYet, err, errors.New(out))
		}
		machine = found[1]
		return nil
	})
	o.run(t, "approve worker-1 --machine "+machine+" --existing-node")

	began = time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if out, err := m.command(ctx, "kubelet-authenticator migrate 2>&1").CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v: %s\n%s", err, out, m.log("kubelet"))
	} else {
		t.Logf("after %s: %s", time.Since(began).Round(time.Second), out)
	}
	m.alive(t, time.Now())
	if left := m.run(t, "ls -A /etc/kubernetes /var/lib/kubelet/pki /var/lib/kubelet-authenticator"); strings.Contains(left, "migrat") || strings.Contains(left, "kubelet-client-") {
		t.Errorf("it leaves\n%s", left)
	}
	m.controller.checkLog(t)
	m.controller.stop(t)
	m.controller = c.deploy(t, device, m.name, "enforce")
	m.run(t, "kubelet-authenticator rotate")
	m.alive(t, time.Now())
	m.controller.checkLog(t)
}
