package kube

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A wholeCluster is one that kubeadm init makes: its control plane is pods, which kubelets start under
// containerd. On every machine and outside, its endpoint is the cluster's url, from which
// a wire leads to a machine of the control plane.
type wholeCluster struct {
	*cluster
	groups   *groups
	hub      *hub
	tpms     *tpmsim.CA // of the machines' TPMs
	planes   []*member  // the machines of the control plane
	machines int
	folder   string // of the kustomization
}

// wholeInit is the configuration of kubeadm init.
const (
	wholeInit = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.%[1]d, bindPort: 6443}
nodeRegistration: {criSocket: "` + containerdSocket + `", imagePullPolicy: Never}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[2]s
controlPlaneEndpoint: %[3]s
encryptionAlgorithm: ECDSA-P256
apiServer: {certSANs: [127.0.0.1]%[5]s}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
localStorageCapacityIsolation: false
protectKernelDefaults: true
%[4]s`
	// serviceAddress is the API server's for pods. There is no kube-proxy: on each machine, a wire leads from there.
	serviceAddress = "10.96.0.1"
	wholeImage     = "registry.example/nodeattest:v1"
	wholeMachine   = `umount /proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/ip_forward
ip addr add ` + serviceAddress + `/32 dev lo
for n in $(seq 10 19); do [ $n = %[1]d ] || ip route add 10.244.$n.0/24 via 192.0.2.$n; done
echo "127.0.0.1 localhost
192.0.2.%[1]d %[2]s" >/etc/hosts
: >/etc/resolv.conf # a name that is not there is unknown at once
`
)

// startWhole has kubeadm init make a cluster, whose first machine is called control-plane-1. It is plain, and there
// is nothing of ours in it. A test may change the machine before, and add members to the configuration of the API server.
func startWhole(t *testing.T, before ...func(m *member) (apiServer string)) *wholeCluster {
	t.Helper()
	g := boxNeeds(t, 1)
	containerdNeeds(t)
	c := &cluster{url: "https://127.0.0.1:" + controlplane.FreePorts(t, 1)[0], dir: t.TempDir(), scheme: kuberuntime.NewScheme()}
	w := &wholeCluster{cluster: c, groups: g, hub: startHub(t), tpms: newCA(t, "")}
	for _, add := range []func(*kuberuntime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(w.scheme); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", w.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(carry(listener, w.dial))
	m := w.newMachine(t, "control-plane-1")
	m.importKubernetes(t, controlplane.Binaries(t))
	w.planes = append(w.planes, m)
	kubelet := ""
	if g.version == 1 {
		kubelet = kubeletV1
	}
	apiServer := ""
	for _, of := range before {
		apiServer += of(m)
	}
	version := strings.TrimSpace(m.run(t, "kubeadm version -o short"))
	m.put(t, "/etc/operator/init.yaml", 0o600, fmt.Appendf(nil, wholeInit, m.host, version, w.address(), kubelet, apiServer))
	m.kubeadm(t, "init --config /etc/operator/init.yaml --skip-phases=addon --ignore-preflight-errors=SystemVerification,CreateJob")
	w.ca = readAuthority(t, m)
	w.admin = w.client(t, w.user(t, "admin", "system:masters"))
	m.run(t, "cp /etc/kubernetes/admin.conf /etc/operator/admin.conf")
	w.ready(t, m.name)
	return w
}

// dial connects to an API server that answers.
func (w *wholeCluster) dial() (net.Conn, error) {
	err := errNotYet
	for _, m := range w.planes {
		conn, failed := m.dial(fmt.Sprintf("192.0.2.%d:6443", m.host))
		if failed == nil {
			return conn, nil
		}
		err = errors.Join(err, failed)
	}
	return nil, err
}

// newMachine starts a machine in the cluster's network, with a TPM, a runtime and the files of kubeadm's packages.
func (w *wholeCluster) newMachine(t *testing.T, name string) *member {
	t.Helper()
	w.machines++
	m := w.newMember(t, name, w.groups, tpmsim.Swtpm(t, tpmsim.Options{CA: w.tpms, PersistEKs: true}))
	m.host = 9 + w.machines
	w.hub.plug(t, m.box, m.host)
	w.prepare(t, m)
	m.installKubeadm(t)
	return m
}

// prepare makes a machine that has started fit for pods.
func (w *wholeCluster) prepare(t *testing.T, m *member) {
	t.Helper()
	m.run(t, fmt.Sprintf(wholeMachine, m.host, m.name))
	for _, address := range []string{w.address(), serviceAddress + ":443"} {
		m.wire(t, address, w.dial)
	}
	m.startContainerd(t, m.host, sandboxImage(t))
}

// kubeadm runs a command of kubeadm on the machine.
func (m *member) kubeadm(t *testing.T, command string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	out, err := m.command(ctx, "kubeadm "+command+" 2>&1").CombinedOutput()
	if err != nil {
		t.Fatalf("kubeadm %s: %v\n%s\nkubelet:\n%s", command, err, out, m.log("kubelet"))
	}
	return string(out)
}

// readAuthority reads the cluster's CA from a machine of the control plane.
func readAuthority(t *testing.T, m *member) *controlplane.Authority {
	t.Helper()
	cert, _ := pem.Decode([]byte(m.run(t, "cat /etc/kubernetes/pki/ca.crt")))
	key, _ := pem.Decode([]byte(m.run(t, "cat /etc/kubernetes/pki/ca.key")))
	a := new(controlplane.Authority)
	var err, failed error
	a.Cert, err = x509.ParseCertificate(cert.Bytes)
	a.Key, failed = x509.ParseECPrivateKey(key.Bytes)
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return a
}

// ready waits until nodes are Ready.
func (w *wholeCluster) ready(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, func() error {
			var node corev1.Node
			if err := w.admin.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
				return err
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("%s: %v", name, node.Status.Conditions)
		})
	}
}

// deploy applies everything of kube/deploy with some components and an inventory of these nodes, as
// docs/getting-started.md has it, and waits until the controller's pods are ready.
func (w *wholeCluster) deploy(t *testing.T, nodes []string, components ...string) {
	t.Helper()
	w.importController(t, w.planes...)
	w.writeKustomization(t, nodes, components)
	k := w.kubectl(t)
	for _, args := range [][]string{
		{"apply", "-k", w.folder, "--validate=strict"},
		{"rollout", "status", "-n", "nodeattest-system", "deployment/" + controller.DefaultName, "--timeout=3m"},
	} {
		if _, err := k.plain(t.Context(), args...); err != nil {
			pods, _ := k.plain(context.Background(), "describe", "pods", "-n", "nodeattest-system")
			logs, _ := k.plain(context.Background(), "logs", "-n", "nodeattest-system", "deployment/"+controller.DefaultName)
			t.Fatalf("%v\n%s\n%s", err, pods, logs)
		}
	}
}

// importController gives machines the image of the controller.
func (w *wholeCluster) importController(t *testing.T, machines ...*member) {
	t.Helper()
	if w.folder == "" {
		w.folder = t.TempDir()
		archive := filepath.Join(w.folder, "image.tar")
		build := exec.Command("go", "run", "-C", filepath.Join("..", "..", "tools", "image"), ".",
			"-o", archive, "-tag", wholeImage, "-arch", goruntime.GOARCH, buildProgram(t, controller.DefaultName))
		build.Env = append(os.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, m := range machines {
		if m.command(t.Context(), "ctr --namespace k8s.io images list -q | grep -qxF "+wholeImage).Run() != nil {
			m.importArchive(t, wholeImage, bytes.NewReader(read(t, filepath.Join(w.folder, "image.tar"))))
		}
	}
}

// kubectl is that of an administrator, outside the machines.
func (w *wholeCluster) kubectl(t *testing.T) *operator {
	t.Helper()
	return &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: w.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
}

// writeKustomization writes the kustomization of deploy and the files that it names.
func (w *wholeCluster) writeKustomization(t *testing.T, nodes, components []string) {
	t.Helper()
	shipped, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	if shipped, err = filepath.Rel(w.folder, shipped); err != nil {
		t.Fatal(err)
	}
	paths := make([]string, len(components))
	for i, c := range components {
		paths[i] = filepath.Join(shipped, c)
	}
	image, tag, _ := strings.Cut(wholeImage, ":")
	controlplane.Write(t, w.folder, "kustomization.yaml", fmt.Appendf(nil, `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%s]
components: [%s]
images: [{name: nodeattest.invalid/nodeattest, newName: %s, newTag: %s}]
configMapGenerator:
  - name: node-attestation
    namespace: nodeattest-system
    files: [config.yaml, inventory.yaml, ek-roots.pem]
generatorOptions: {disableNameSuffixHash: true}
`, shipped, strings.Join(paths, ", "), image, tag))
	config := regexp.MustCompile(`(?m)^  mode: .*`).ReplaceAll(manifests(t, "config.yaml")[0], []byte("  mode: FirstUse"))
	controlplane.Write(t, w.folder, "config.yaml", config)
	controlplane.Write(t, w.folder, "inventory.yaml", []byte("machines:\n- nodeName: "+strings.Join(nodes, "\n- nodeName: ")+"\n"))
	controlplane.Write(t, w.folder, "ek-roots.pem", controlplane.CertificatePEM(w.tpms.Root()))
}
