package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestKubeadmAllEnded takes the power from every machine of a cluster that enforces, until each certificate has
// ended: kubeadm's, which for that end soon, and the nodes'. By docs/kubeadm.md alone, the cluster comes back.
func TestKubeadmAllEnded(t *testing.T) {
	t.Parallel()
	w := startWhole(t)
	plane := w.planes[0]
	// Of the lifetime that nodes ask for, a tenth is a minute.
	plane.run(t, `sed -i 's#^    - --cluster-signing-key-file=.*#&\n    - --cluster-signing-duration=75s#' /etc/kubernetes/manifests/kube-controller-manager.yaml`)
	w.deploy(t, wholeNodes)
	w.migrate(t, plane)
	w.deploy(t, wholeNodes, "enforce")
	enforced := time.Now()
	worker := w.joinWorker(t, "worker-1")
	all := []*member{plane, worker}

	plane.run(t, "sed 's/^encryptionAlgorithm/certificateValidityPeriod: 30s\\n&/' /etc/operator/init.yaml >/etc/operator/short.yaml")
	plane.kubeadm(t, "certs renew all --config /etc/operator/short.yaml")
	end := time.Now().Add(31 * time.Second)
	for _, m := range all {
		if now := m.status(t).Certificates[0].NotAfter; now.After(end) {
			end = now
		}
		m.put(t, "/etc/systemd/system/kubelet-authenticator.service.d/short.conf", 0o644, []byte("[Service]\nTimeoutStartSec=20\n"))
	}
	for _, m := range all {
		m.off(t)
	}
	time.Sleep(time.Until(end) + time.Second)
	began := time.Now()
	for _, m := range all {
		if err := m.device.Reset(); err != nil {
			t.Fatal(err)
		}
		m.on(t)
	}
	if out, err := plane.command(t.Context(), "kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes --request-timeout 5s 2>&1").CombinedOutput(); err == nil {
		t.Errorf("a certificate has not ended: %s", out)
	}
	w.comesBack(t, plane, worker)
	for _, m := range all {
		m.alive(t, began)
		m.run(t, "kubelet-authenticator rotate")
	}
	w.ready(t, plane.name, worker.name)
	w.checkEvidence(t, enforced)
	t.Logf("the cluster is back after %s", time.Since(began).Round(time.Second))
}

// comesBack follows the page.
func (w *wholeCluster) comesBack(t *testing.T, plane, worker *member) {
	t.Helper()
	page := kubeadmPage(t)
	steps := page.steps(t, "After all certificates have ended")
	if len(steps) != 5 {
		t.Fatalf("the page has %d steps", len(steps))
	}
	plane.run(t, steps[0])
	plane.eventually(t, func() error {
		return plane.command(t.Context(), "kubectl --kubeconfig /etc/kubernetes/admin.conf get --raw /readyz").Run()
	})
	began := time.Now()
	plane.run(t, steps[1])
	plane.alive(t, began)
	plane.run(t, steps[2])
	for _, m := range []*member{plane, worker} {
		words := strings.Fields(plane.run(t, "kubeadm --kubeconfig /etc/kubernetes/admin.conf token create"))
		m.run(t, strings.ReplaceAll(steps[3], "TOKEN", words[len(words)-1]))
	}
	plane.eventually(t, func() error {
		if now := plane.status(t).Certificates[0]; !now.Usable {
			return errors.Join(errNotYet, fmt.Errorf("it ended at %s: %s", now.NotAfter, now.LastError))
		}
		return nil
	})
	plane.run(t, steps[4])
}
