package kube

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// kubeletNeeds skips a test that cannot run a kubelet here.
func kubeletNeeds(t *testing.T) {
	t.Helper()
	if info, err := os.Stat(controlplane.Kubelet(t)); err != nil || info.Mode()&0o111 == 0 {
		t.Skip("no kubelet; to build it, run in the repository: scripts/kube-binaries.sh")
	}
	if _, err := exec.LookPath("unshare"); err != nil || os.Geteuid() != 0 {
		t.Skip("a kubelet takes root, and unshare of util-linux")
	}
}

// kubeletConfig is that of a kubelet which touches nothing of this machine.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
rotateCertificates: false
containerRuntimeEndpoint: %s
address: 127.0.0.1
port: %s
healthzPort: 0
authentication: {x509: {clientCAFile: %s}, anonymous: {enabled: false}, webhook: {enabled: true}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
protectKernelDefaults: true
podLogsDir: %s
volumePluginDir: %s
%s
`

// kubeletStart has the kubelet find the kernel's settings as it wants them, in a mount
// namespace of its own, where its folders are too. With a FIFO hold, the kubelet starts after a line there.
const kubeletStart = `set -e
dir=$1; shift
mount --make-rprivate /
mount --bind "$dir/overcommit" /proc/sys/vm/overcommit_memory
mount --bind "$dir/panic" /proc/sys/kernel/panic
mount --bind "$dir/oops" /proc/sys/kernel/panic_on_oops
mount -t tmpfs none /var/log
mount -t tmpfs none /var/lib
mount -t tmpfs none /usr/libexec
if [ -p "$dir/hold" ]; then read -r line <"$dir/hold"; fi
exec "$@"
`

// startKubelet starts a kubelet whose only credential is the authenticator.
func (m *nodeMachine) startKubelet(t *testing.T, more string) (p *process, port string) {
	t.Helper()
	kubeconfig := m.kubeconfig(t, "kubelet", &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: m.program, Args: []string{"-config", m.config, "credential"}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode}})
	return m.prepareKubelet(t, kubeletConfig, more)("--kubeconfig=" + kubeconfig)
}

// prepareKubelet writes a kubelet's configuration, and returns what starts it, with flags.
func (m *nodeMachine) prepareKubelet(t *testing.T, config, more string) (start func(flags ...string) (p *process, port string)) {
	t.Helper()
	dir := m.dir
	for name, value := range map[string]string{"overcommit": "1\n", "panic": "10\n", "oops": "1\n"} {
		controlplane.Write(t, dir, name, []byte(value))
	}
	port := controlplane.FreePorts(t, 1)[0]
	path := controlplane.Write(t, dir, "kubelet.yaml", fmt.Appendf(nil, config, startRuntime(t, dir), port, filepath.Join(m.c.dir, "ca.crt"),
		filepath.Join(dir, "podlogs"), filepath.Join(dir, "plugins"), more))
	return func(flags ...string) (*process, string) {
		t.Helper()
		return startAs(t, "kubelet", "unshare", dir, append([]string{"-m", "sh", "-c", kubeletStart, "sh", dir,
			controlplane.Kubelet(t), "--config=" + path, "--root-dir=" + filepath.Join(dir, "root"),
			"--cert-dir=" + filepath.Join(dir, "pki"), "--hostname-override=" + m.name, "-v=2"}, flags...)...), port
	}
}

// auditEvent holds the members of a line of the log that tests read.
type auditEvent struct {
	AuditID    string `json:"auditID"` // of a request: a watch has an event at its start and at its end
	UserAgent  string `json:"userAgent"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// kubeletRequests are the requests of kubelets in the log.
func kubeletRequests(t *testing.T, log string) []auditEvent {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []auditEvent
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e auditEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may not be whole yet
		}
		if strings.HasPrefix(e.UserAgent, "kubelet/") {
			events = append(events, e)
		}
	}
	return events
}

// nodeReady waits until the node is ready.
func (c *cluster) nodeReady(t *testing.T, name string) {
	t.Helper()
	began := time.Now()
	var node corev1.Node
	eventually(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("node %s is not ready: %+v", name, node.Status.Conditions)
	})
	t.Logf("node %s is ready after %s, by kubelet %s", name, time.Since(began).Round(100*time.Millisecond), node.Status.NodeInfo.KubeletVersion)
}

// leaseSince fails if the kubelet has not renewed its Lease since a time.
func (c *cluster) leaseSince(t *testing.T, name string, since time.Time) error {
	t.Helper()
	var lease coordinationv1.Lease
	if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: "kube-node-lease", Name: name}, &lease); err != nil {
		return err
	}
	if lease.Spec.RenewTime == nil || !lease.Spec.RenewTime.After(since) {
		return fmt.Errorf("the kubelet has not renewed its lease since %s: %v", since, lease.Spec.RenewTime)
	}
	return nil
}

// TestKubelet has a real kubelet reach Ready with nothing but its TPM and a bootstrap token
// that admits no machine by itself: every one of its requests is made under a certificate that
// was attested.
func TestKubelet(t *testing.T) {
	t.Parallel()
	kubeletNeeds(t)
	program := buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	r := c.firstUse(t, device, "node-1")
	m := c.install(t, program, "node-1", device, nil)
	began := time.Now()
	kubelet, _ := m.startKubelet(t, "")
	c.nodeReady(t, m.name)
	t.Logf("from the kubelet's start: %s", time.Since(began).Round(100*time.Millisecond))
	if n := c.filedBy(t, csr.BootstrapUserPrefix+attesttest.TokenID); n != 2 {
		t.Errorf("%d requests with the bootstrap token, want 2", n)
	}
	allowed := map[string]bool{m.status(t).Certificates[0].CredentialID: true}
	// It rotates while the kubelet runs, which takes the new certificate at its next look.
	if _, stderr, err := m.run(t.Context(), "rotate"); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	allowed[m.status(t).Certificates[0].CredentialID] = true
	kubelet.stop(t)

	events := kubeletRequests(t, c.auditLog)
	for _, e := range events {
		id := strings.Join(e.User.Extra[csr.ExtraCredentialID], " ")
		if e.User.Username != csr.NodeUserPrefix+m.name || !allowed[id] {
			t.Errorf("%s %s as %q with %q", e.Verb, e.RequestURI, e.User.Username, id)
		}
	}
	if len(events) < 10 {
		t.Errorf("%d requests of the kubelet", len(events))
	}
	t.Logf("%d requests of the kubelet, all under the attested certificate", len(events))
	r.checkLog(t)
}
