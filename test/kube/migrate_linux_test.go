package kube

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestMigrate has the command migrate a node that joined without evidence, in a cluster that observes: first
// without an operator, which changes nothing, then to its end. Then the cluster enforces.
func TestMigrate(t *testing.T) {
	t.Parallel()
	m := plainMember(t)

	const kubelets = "cd /; sha256sum /etc/kubernetes/kubelet.conf /etc/kubernetes/kubelet-authenticator.conf /usr/lib/systemd/system/kubelet.service.d/*; ls -A /etc/kubernetes /etc/systemd/system /var/lib/kubelet/pki; systemctl show -P MainPID kubelet"
	plain := m.run(t, kubelets)
	if out, err := m.command(t.Context(), "kubelet-authenticator migrate --timeout 5s 2>&1").CombinedOutput(); err == nil || !strings.Contains(string(out), "kubectl nodeattest approve worker-1") {
		t.Errorf("no operator: %v: %s", err, out)
	}
	if now := m.run(t, kubelets); now != plain {
		t.Errorf("without an operator, the node is\n%s\nand was\n%s", now, plain)
	}

	o := m.c.newOperator(t)
	machine := m.pendingMachine(t, o)
	o.refuse(t, "approve --existing-nodes", 1, "standard input is not a terminal")
	t.Log(o.run(t, "approve --existing-nodes --yes worker-1", "node worker-1 is machine "+machine, "system:node:worker-1", "1 approved, 0 refused"))
	o.run(t, "approve --existing-nodes --yes", "0 approved, 0 refused")

	began := time.Now()
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
	m.survivesEnforcing(t)
}
