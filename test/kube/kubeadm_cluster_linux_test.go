package kube

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// kubeletUnit and kubeletDropIn are what kubeadm's packages install.
const (
	kubeletUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
`
	kubeletDropIn = `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`
	// kubeadmInit is the configuration of a cluster that kubeadm made, and joinConfig that of a
	// machine which joins it.
	kubeadmInit = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.10, bindPort: 6443}
nodeRegistration: {name: control-plane, criSocket: unix:///run/cri.sock}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
controlPlaneEndpoint: %s
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: [none]
localStorageCapacityIsolation: false
protectKernelDefaults: true
%s`
	// kubeletV1 has a kubelet take control groups of version 1, which it refuses by default. It makes no
	// groups for pods with either version: those take controllers, which a box may lack.
	kubeletV1 = `failCgroupV1: false
cgroupDriver: cgroupfs
`
	joinConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {file: {kubeConfigPath: /etc/kubernetes/discovery.conf}, tlsBootstrapToken: %s}
nodeRegistration: {criSocket: "%s", taints: []}
`
)

// installKubeadm puts the programs and the files of kubeadm's packages on the machine.
func (m *member) installKubeadm(t *testing.T) {
	t.Helper()
	bin := controlplane.Binaries(t)
	for _, program := range []string{controlplane.Kubelet(t), filepath.Join(bin, "kubeadm"), filepath.Join(bin, "kubectl")} {
		m.run(t, "ln -sf "+program+" /usr/bin/")
	}
	m.put(t, "/usr/lib/systemd/system/kubelet.service", 0o644, []byte(kubeletUnit))
	m.put(t, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", 0o644, []byte(kubeletDropIn))
	m.run(t, "systemctl daemon-reload; systemctl enable kubelet")
}

// kubeadmCluster is a cluster that kubeadm can join, with Kubernetes' own signer, whose client
// certificates last so long. Of the lifetime that is asked for, a tenth is a minute.
func kubeadmCluster(t *testing.T, lifetime string) (c *cluster, signer *process) {
	t.Helper()
	c = startCluster(t)
	c.signingDuration = lifetime
	c.namespaces(t)
	return c, c.startSigner(t)
}

// upload has kubeadm put into the cluster what its joins read, with automatic approval, and returns
// a fresh token.
func (m *member) upload(t *testing.T) (token string) {
	t.Helper()
	m.put(t, "/etc/operator/admin.conf", 0o600, read(t, m.c.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")))
	version := strings.TrimSpace(m.run(t, "kubeadm version -o short"))
	kubelet := ""
	if m.groups.version == 1 {
		kubelet = kubeletV1
	}
	m.put(t, "/etc/operator/init.yaml", 0o600, fmt.Appendf(nil, kubeadmInit, version, m.c.address(), kubelet))
	m.run(t, "kubeadm init phase upload-config all --config /etc/operator/init.yaml --kubeconfig /etc/operator/admin.conf")
	m.run(t, "kubeadm init phase bootstrap-token --config /etc/operator/init.yaml --kubeconfig /etc/operator/admin.conf")
	return m.token(t)
}

// token is a fresh bootstrap token.
func (m *member) token(t *testing.T) string {
	t.Helper()
	words := strings.Fields(m.run(t, "kubeadm token create --kubeconfig /etc/operator/admin.conf"))
	return words[len(words)-1]
}

// enforced connects the machine to its cluster, and has an operator enforce attestation in it, as
// kubeadm made it: its bindings for automatic approval stay. It returns a bootstrap token.
func (m *member) enforced(t *testing.T) (token string) {
	t.Helper()
	if m.cut != nil {
		m.cut()
	}
	m.cut = m.connect(t, m.c.address())
	token = m.upload(t)
	m.controller = m.c.deploy(t, m.device, m.name, "enforce")
	return token
}

// kubeadmJoin is kubeadm's part of it, by the commands of the page. That a machine of a test is not
// one of kubeadm's choice is ignored, too.
func (m *member) kubeadmJoin(t *testing.T, token, runtime, commands string) {
	t.Helper()
	m.put(t, "/etc/kubernetes/join.yaml", 0o600, fmt.Appendf(nil, joinConfig, token, runtime))
	discovery := regexp.MustCompile(`(?s)client-certificate-data:.*`).ReplaceAll(read(t, filepath.Join(m.c.dir, "admin.kubeconfig")), []byte("token: "+token+"\n"))
	m.put(t, "/etc/kubernetes/discovery.conf", 0o600, discovery)
	const ignore = "--ignore-preflight-errors="
	m.run(t, strings.NewReplacer("kubeadm join ...", "kubeadm join --config /etc/kubernetes/join.yaml", ignore, ignore+"SystemVerification,").Replace(commands))
}

// deploy applies everything of kube/deploy with some components for one node, as docs/getting-started.md
// has it, and runs the controller's Deployment until it is ready.
func (c *cluster) deploy(t *testing.T, device *tpmsim.TPM, nodeName string, components ...string) *process {
	t.Helper()
	ports := controlplane.FreePorts(t, 4)
	folder := overlay(t, c.nodeOn(t, device, nodeName), ports, components...)
	k := &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: t.TempDir(), kubeconfig: c.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
	if _, err := k.plain(t.Context(), "apply", "-k", folder, "--validate=strict"); err != nil {
		t.Fatal(err)
	}
	return c.runDeployment(t, ports[1])
}

// runDeployment acts as a kubelet with a pod of the controller's Deployment, and waits until its program is ready.
func (c *cluster) runDeployment(t *testing.T, healthPort string) *process {
	t.Helper()
	root := t.TempDir()
	program := controlplane.Write(t, root, controller.DefaultName, controlplane.Read(t, buildProgram(t, controller.DefaultName)))
	for _, path := range []string{root, program} { // for another user
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := c.startDeployment(t, controller.DefaultName, root)
	p.ready(t, func() error { return controlplane.Healthy("http://127.0.0.1:" + healthPort + "/readyz") })
	return p
}
