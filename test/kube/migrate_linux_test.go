package kube

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMigrate has the command migrate a node that joined without evidence, in a cluster that observes: first
// with a file that kubeadm did not write, without an operator, and with a kubelet that does not come up by the
// plugin, which leave or put back the old files; then to its end. Then the cluster enforces.
func TestMigrate(t *testing.T) {
	t.Parallel()
	m := plainMember(t)
	plain := m.run(t, kubeletState)
	t.Run("a file that differs", func(t *testing.T) {
		m.run(t, "cp -p /etc/kubernetes/kubelet.conf /run/kubelet.conf; echo '# mine' >> /etc/kubernetes/kubelet.conf")
		m.migrateFails(t, "kubelet-authenticator migrate", 1, "nothing was changed", "/etc/kubernetes/kubelet.conf, line 20")
		m.run(t, "mv /run/kubelet.conf /etc/kubernetes/kubelet.conf")
		m.stayed(t, plain)
	})
	t.Run("no operator", func(t *testing.T) {
		m.migrateFails(t, "kubelet-authenticator migrate --timeout 5s", 3, "nothing was changed", "kubectl nodeattest approve worker-1")
		m.stayed(t, plain)
	})

	o := m.c.newOperator(t)
	machine := m.pendingMachine(t, o)
	o.refuse(t, "approve --existing-nodes", 1, "standard input is not a terminal")
	t.Log(o.run(t, "approve --existing-nodes --yes worker-1", "node worker-1 is machine "+machine, "system:node:worker-1", "1 approved, 0 refused"))
	o.run(t, "approve --existing-nodes --yes", "0 approved, 0 refused")
	t.Run("a kubelet that does not come up", func(t *testing.T) { m.testDoesNotComeUp(t, plain) })

	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := m.command(ctx, "kubelet-authenticator migrate 2>&1").CombinedOutput()
	if err != nil {
		t.Fatalf("migrate: %v: %s\n%s", err, out, m.log("kubelet"))
	}
	t.Logf("after %s: %s", time.Since(began).Round(time.Second), out)
	if strings.Contains(string(out), "level=WARN") {
		t.Error("a migration that succeeds warns")
	}
	m.alive(t, time.Now())
	if left := m.run(t, "ls -A /etc/kubernetes /var/lib/kubelet/pki /var/lib/kubelet-authenticator"); strings.Contains(left, "migrat") || strings.Contains(left, "kubelet-client-") {
		t.Errorf("it leaves\n%s", left)
	}
	m.survivesEnforcing(t)
}

// kubeletState prints the kubelet's files with their digests, and at its end the kubelet's process.
const kubeletState = "cd /; sha256sum /etc/kubernetes/kubelet.conf /etc/kubernetes/kubelet-authenticator.conf " +
	"/usr/lib/systemd/system/kubelet.service.d/* /var/lib/kubelet/pki/*; " +
	"ls -A /etc/kubernetes /etc/systemd/system /var/lib/kubelet/pki; systemctl show -P MainPID kubelet"

// stayed holds that the kubelet is the same process, with the same files.
func (m *member) stayed(t *testing.T, plain string) {
	t.Helper()
	if now := m.run(t, kubeletState); now != plain {
		t.Errorf("the node is\n%s\nand was\n%s", now, plain)
	}
}

// migrateFails runs a command that migrates, which must fail with this status and say all of want.
func (m *member) migrateFails(t *testing.T, command string, status int, want ...string) {
	t.Helper()
	began := time.Now()
	out, err := m.command(t.Context(), "("+command+") 2>&1").CombinedOutput()
	t.Logf("after %s: %v: %s", time.Since(began).Round(time.Second), err, out)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != status {
		t.Errorf("got %v, want status %d", err, status)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			t.Errorf("got %s, want %q in it", out, w)
		}
	}
}

// testDoesNotComeUp: the program cannot be started while the kubelet has its new files, so the kubelet has no plugin. The
// kubelet then runs with its old files, byte for byte. Meanwhile status says that a migration has not ended.
func (m *member) testDoesNotComeUp(t *testing.T, plain string) {
	const program = "/usr/local/bin/kubelet-authenticator"
	m.migrateFails(t, "cp "+program+" /run/copy; (while ! [ -e /etc/kubernetes/.kubelet.conf.migrate-old ]; do sleep .05; done; "+
		"chmod 0644 "+program+"; /run/copy status >/run/meanwhile) & "+
		"status=0; kubelet-authenticator migrate --ready-timeout 20s || status=$?; chmod 0755 "+program+"; exit $status",
		1, "everything is put back, and the kubelet has its old files", "the kubelet is not Ready within 20s")
	if said := m.run(t, "cat /run/meanwhile"); !strings.Contains(said, `"kubelet-authenticator migrate --undo"`) {
		t.Errorf("meanwhile, status says\n%s", said)
	}
	if said := m.run(t, "kubelet-authenticator status || true"); strings.Contains(said, "migrat") {
		t.Errorf("afterwards, status says\n%s", said)
	}
	process := regexp.MustCompile(`\d+\s*$`)
	if now := m.run(t, kubeletState); process.ReplaceAllString(now, "") != process.ReplaceAllString(plain, "") {
		t.Errorf("the node is\n%s\nand was\n%s", now, plain)
	}
	m.alive(t, time.Now())
}
