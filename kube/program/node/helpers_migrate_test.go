package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/mounttest"
	"github.com/nodeattest/nodeattest/kube/authenticator"
)

// The files of a node that kubeadm joined: the kubelet wrote the first, and packages install the second.
const (
	joinedConf = `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: AAAA
    server: https://192.0.2.1:6443
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
`
	packagedDropIn = `# Note: This dropin only works with kubeadm and kubelet v1.11+
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# This is a file that "kubeadm init" and "kubeadm join" generates at runtime
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`
	plainConfig = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'}}]\n" +
		"contexts: [{name: c, context: {cluster: c, user: u}}]\ncurrent-context: c\nusers: [{name: u, user: {token: abcdef.0123456789abcdef}}]\n"
)

// plainNode is a node that kubeadm joined, with a systemd and a kubelet that a test makes: what the kubelet
// has read is in a file, so that other processes find it. It is the attester, too.
type plainNode struct {
	dir      string
	broken   bool          // a kubelet with any new file does not come up
	approved atomic.Bool   // the operator has approved the machine
	approve  time.Duration // how long that takes; 0: it never comes
	out      bytes.Buffer
}

func newPlainNode(t testing.TB) *plainNode {
	t.Helper()
	n := &plainNode{dir: mounttest.Disk(t)}
	n.approved.Store(true)
	for path, text := range map[string]string{
		"etc/kubernetes/kubelet.conf":                               joinedConf,
		"etc/kubernetes/kubelet-authenticator.conf":                 plainConfig,
		"usr/lib/systemd/system/kubelet.service":                    "[Service]\nExecStart=/usr/bin/kubelet\n",
		"usr/lib/systemd/system/kubelet.service.d/" + kubeadmDropIn: packagedDropIn,
		"var/lib/kubelet/kubeadm-flags.env":                         "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/cri.sock\"\n",
		"var/lib/kubelet/pki/kubelet-client-current.pem":            "a certificate and its key",
		"var/lib/kubelet/pki/kubelet.crt":                           "a serving certificate",
	} {
		n.put(path, text)
	}
	testkit.MustDo(os.MkdirAll(n.path("etc/systemd/system"), 0o755))
	testkit.MustDo(os.MkdirAll(n.path("state"), 0o700))
	n.start()
	return n
}

func (n *plainNode) path(name string) string { return filepath.Join(n.dir, filepath.FromSlash(name)) }

func (n *plainNode) put(name, text string) {
	testkit.MustDo(os.MkdirAll(filepath.Dir(n.path(name)), 0o755))
	testkit.MustDo(os.WriteFile(n.path(name), []byte(text), 0o600))
}

func (n *plainNode) get(name string) string {
	text, err := os.ReadFile(n.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
	return string(text)
}

// files are the kubelet's files as systemd and the kubelet would read them now.
func (n *plainNode) files() string {
	dropIn := n.get("etc/systemd/system/kubelet.service.d/" + kubeadmDropIn)
	if dropIn == "" {
		dropIn = n.get("usr/lib/systemd/system/kubelet.service.d/" + kubeadmDropIn)
	}
	return dropIn + "\n" + n.get("etc/kubernetes/kubelet.conf")
}

// start starts the kubelet, as systemd does at a restart or at the start of the machine.
func (n *plainNode) start() {
	n.put("run/kubelet", n.files())
	n.put("run/invocation", fmt.Sprint(time.Now().UnixNano()))
}

// systemctl is systemd's.
func (n *plainNode) systemctl(_ context.Context, args ...string) (string, error) {
	unit := args[len(args)-1]
	switch strings.Join(args[:len(args)-1], " ") {
	case "":
	case "show -P LoadState":
		return "loaded", nil
	case "show -P ExecStart":
		const program = "/usr/local/bin/kubelet-authenticator"
		return "{ path=" + program + " ; argv[]=" + program + " --config " + defaultConfig + " daemon ; ignore_errors=no ; pid=0 }", nil
	case "show -P ActiveState":
		if unit == "kubelet" || n.get("run/service") != "" {
			return "active", nil
		}
		return "inactive", nil
	case "show -P InvocationID":
		return n.get("run/invocation"), nil
	case "restart":
		n.start()
		n.put("run/service", "active") // the drop-in wants it
	case "stop":
		return "", remove(n.path("run/service"))
	case "enable":
		n.put("run/enabled", "enabled")
	default:
		return "", fmt.Errorf("systemctl %q", args)
	}
	return "", nil
}

// Run attests.
func (n *plainNode) Run(ctx context.Context) error {
	if n.approve != 0 {
		time.Sleep(n.approve)
		n.approved.Store(true)
		return nil
	}
	<-ctx.Done()
	return nil
}

// Status is usable once the operator has approved the machine.
func (n *plainNode) Status() *authenticator.Status {
	return &authenticator.Status{Usable: n.approved.Load()}
}

// migration is one on this node.
func (n *plainNode) migration(before func(step string) error) *migration {
	m := &migration{node: "worker-1", attester: n, stateDir: n.path("state"), kubeconfig: n.path("etc/kubernetes/kubelet-authenticator.conf"),
		kubeletConf: n.path("etc/kubernetes/kubelet.conf"), dropIn: n.path("etc/systemd/system/kubelet.service.d/" + kubeadmDropIn),
		pki: n.path("var/lib/kubelet/pki"), configFile: defaultConfig,
		timeout: time.Minute, tick: time.Millisecond, readyLimit: 20 * time.Millisecond, out: &n.out, systemctl: n.systemctl, before: before}
	for _, pattern := range defaultFlagFiles() {
		m.flagFiles = append(m.flagFiles, n.path(strings.TrimPrefix(pattern, "/")))
	}
	m.ready = func(context.Context, time.Time) error {
		if n.broken && n.get("run/kubelet") != packagedDropIn+"\n"+joinedConf {
			return errors.New("the kubelet does not come up")
		}
		return nil
	}
	return m
}

// tree is each file of the node, with its mode and its bytes, but for those of the test's systemd.
func (n *plainNode) tree() map[string]string {
	all := make(map[string]string)
	testkit.MustDo(filepath.WalkDir(n.dir, func(path string, entry fs.DirEntry, err error) error {
		name := testkit.Must(filepath.Rel(n.dir, path))
		switch {
		case err != nil:
			return err
		case name == "run":
			return fs.SkipDir
		}
		info := testkit.Must(entry.Info())
		if text := ""; !entry.IsDir() {
			text = n.get(name)
			all[name] = info.Mode().String() + "\n" + text
		} else {
			all[name] = info.Mode().String()
		}
		return nil
	}))
	return all
}

// untouched holds that the node is the plain one: its files byte for byte, and a kubelet that runs with
// them, the same process if it was not to be restarted.
func (n *plainNode) untouched(t *testing.T, before map[string]string, invocation string) {
	t.Helper()
	if now := n.tree(); !maps.Equal(now, before) {
		for _, name := range slices.Sorted(maps.Keys(now)) {
			if before[name] != now[name] {
				t.Errorf("%s is now %q, and was %q", name, now[name], before[name])
			}
		}
		for name := range before {
			if _, there := now[name]; !there {
				t.Errorf("%s is gone", name)
			}
		}
	}
	if got := n.get("run/kubelet"); got != packagedDropIn+"\n"+joinedConf {
		t.Errorf("the kubelet runs with\n%s", got)
	}
	if got := n.get("run/invocation"); invocation != "" && got != invocation {
		t.Error("the kubelet was restarted")
	}
	if n.get("run/service") != "" {
		t.Error("the authenticator's service still runs")
	}
}

// migrated holds that the node is a migrated one.
func (n *plainNode) migrated(t *testing.T) {
	t.Helper()
	running := n.get("run/kubelet")
	for _, want := range []string{"--rotate-certificates=false", "command: /usr/local/bin/kubelet-authenticator", "- credential", "server: https://192.0.2.1:6443", "Wants=kubelet-authenticator.service"} {
		if !strings.Contains(running, want) {
			t.Errorf("the kubelet runs without %s:\n%s", want, running)
		}
	}
	if strings.Contains(running, "bootstrap-kubeconfig=") || strings.Contains(running, plainPair) {
		t.Errorf("the kubelet runs with\n%s", running)
	}
	if running != n.files() || n.get("run/enabled") == "" || n.get("run/service") == "" {
		t.Error("the kubelet has other files than it read, or the service is not enabled")
	}
	if strings.Contains(n.get("etc/kubernetes/kubelet-authenticator.conf"), "0123456789abcdef") {
		t.Error("the token is still there")
	}
	for name := range n.tree() {
		if strings.Contains(name, "kubelet-client-") || strings.Contains(name, "migrat") || strings.HasSuffix(name, ".tmp") {
			t.Errorf("%s is left", name)
		}
	}
	if n.get("var/lib/kubelet/pki/kubelet.crt") == "" {
		t.Error("the serving certificate is gone")
	}
}
