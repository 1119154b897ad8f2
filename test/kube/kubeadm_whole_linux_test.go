package kube

import "testing"

func TestKubeadmWhole(t *testing.T) {
	t.Parallel()
	w := startWhole(t)
	w.deploy(t, []string{"control-plane-1", "control-plane-2", "worker-1"})
	t.Logf("%s", w.planes[0].run(t, "export KUBECONFIG=/etc/kubernetes/admin.conf; kubectl get nodes,pods -A -o wide; ls -la /etc/kubernetes"))
}
