package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A nodeMachine is a machine with a TPM on which the kubelet-authenticator is installed.
type nodeMachine struct {
	c       *cluster
	program string
	name    string
	dir     string
	config  string // the program's file
	token   string // the kubeconfig with the bootstrap token
}

// install installs the authenticator: its file is the shipped one, with the paths of a
// test. Without a device the change has to configure another kind of evidence.
func (c *cluster) install(t *testing.T, program, name string, device *tpmsim.TPM, change func(config map[string]any)) *nodeMachine {
	t.Helper()
	m := &nodeMachine{c: c, program: program, name: name, dir: t.TempDir()}
	m.token = m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: attesttest.TokenID + "." + tokenSecret})
	text := controlplane.Read(t, filepath.Join("..", "..", "kube", "deploy", "node", "kubelet-authenticator.yaml"))
	var config map[string]any
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		t.Fatal(err)
	}
	config["nodeName"], config["stateDir"], config["keyDir"], config["kubeconfig"] = name, filepath.Join(m.dir, "state"), filepath.Join(m.dir, "state"), m.token
	config["lifetime"] = "1h" // as the signers give
	if device != nil {
		evidence := config["evidence"].(map[string]any)["tpm"].(map[string]any)
		evidence["device"] = strings.TrimPrefix(device.TCTI(), "swtpm:path=")
		evidence["intermediates"] = controlplane.Write(t, m.dir, "intermediates.pem", controlplane.CertificatePEM(device.CA().EKIntermediate()))
	}
	config["kubelet"] = map[string]any{"config": filepath.Join(m.dir, "kubelet.yaml"), "flagFiles": []string{}, "processes": false}
	if change != nil {
		change(config)
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	m.config = controlplane.Write(t, m.dir, "authenticator.yaml", text)
	return m
}

// kubeconfig writes one for this cluster.
func (m *nodeMachine) kubeconfig(t *testing.T, name string, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	return controlplane.Kubeconfig(t, m.dir, name+".kubeconfig", &clientcmdapi.Cluster{Server: m.c.url, CertificateAuthority: filepath.Join(m.c.dir, "ca.crt")}, user)
}

// run runs the program to its end.
func (m *nodeMachine) run(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, m.program, append([]string{"-config", m.config}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// credential runs it as a plugin.
func (m *nodeMachine) credential(t *testing.T) (*clientauthenticationv1.ExecCredential, tls.Certificate) {
	t.Helper()
	stdout, stderr, err := m.run(t.Context(), "credential")
	for end := time.Now().Add(time.Minute); err != nil && strings.Contains(stderr, "no certificate yet, and the next attempt is at") && time.Now().Before(end); {
		time.Sleep(500 * time.Millisecond) // as a kubelet asks again
		stdout, stderr, err = m.run(t.Context(), "credential")
	}
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	c := new(clientauthenticationv1.ExecCredential)
	if err := yaml.UnmarshalStrict([]byte(stdout), c); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(c.Status.ClientCertificateData), []byte(c.Status.ClientKeyData))
	if err != nil {
		t.Fatal(err)
	}
	return c, pair
}

// status asks it how it stands.
func (m *nodeMachine) status(t *testing.T) *authenticator.Status {
	t.Helper()
	stdout, stderr, _ := m.run(t.Context(), "status", "-o", "json") // it fails where there is no certificate
	s := new(authenticator.Status)
	if err := json.Unmarshal([]byte(stdout), s); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	return s
}

// refused runs it as a plugin until an attempt has failed, and returns the error of that.
func (m *nodeMachine) refused(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := m.run(ctx, "credential")
		done <- err
	}()
	var last string
	eventually(t, func() error {
		if last = m.status(t).Certificates[0].LastError; last == "" || strings.Contains(last, "was interrupted") {
			return fmt.Errorf("no failure yet")
		}
		return nil
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("it got a certificate")
	}
	return last
}

// filedBy counts the requests of a user.
func (c *cluster) filedBy(t *testing.T, user string) int {
	t.Helper()
	all := c.requests(t)
	n := 0
	for i := range all {
		if all[i].Spec.Username == user {
			n++
		}
	}
	return n
}

// firstUse starts the controller's program, which admits TPMs of a device's CA as nodes by first use.
func (c *cluster) firstUse(t *testing.T, device *tpmsim.TPM, nodeNames ...string) *replica {
	t.Helper()
	c.knowMachines(t, device, nodeNames...)
	r := c.startController(t, buildProgram(t, controller.DefaultName), "controller", func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
	})
	r.isReady(t)
	return r
}

// TestAuthenticator runs the binary on machines with swtpm against a live cluster.
func TestAuthenticator(t *testing.T) {
	t.Parallel()
	program := buildProgram(t, "kubelet-authenticator")
	c := startJoinable(t)
	ca := newCA(t, "")
	ours := tpmsim.Swtpm(t, tpmsim.Options{CA: ca, PersistEKs: true})
	theirs := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	r := c.firstUse(t, ours, "node-1", "node-2", "node-3", "node-4", "node-5")
	bootstrap := csr.BootstrapUserPrefix + attesttest.TokenID

	node := c.install(t, program, "node-1", ours, nil)
	t.Run("parallel cold runs attest once", func(t *testing.T) {
		var all sync.WaitGroup
		keys := make([]string, 8)
		began := time.Now()
		for n := range keys {
			all.Go(func() {
				stdout, stderr, err := node.run(t.Context(), "credential")
				if err != nil {
					t.Errorf("%v: %s", err, stderr)
				}
				keys[n] = stdout
			})
		}
		all.Wait()
		t.Logf("%d runs took %s", len(keys), time.Since(began).Round(time.Millisecond))
		for _, key := range keys {
			if key != keys[0] {
				t.Error("they print different credentials")
			}
		}
		if n := c.filedBy(t, bootstrap); n != 2 {
			t.Errorf("%d requests, want a hello and an answer", n)
		}
	})
	credential, pair := node.credential(t)
	if pair.Leaf.Subject.CommonName != csr.NodeUserPrefix+node.name || !credential.Status.ExpirationTimestamp.Time.Before(pair.Leaf.NotAfter) {
		t.Errorf("a certificate for %s until %s, renewed at %s", pair.Leaf.Subject, pair.Leaf.NotAfter, credential.Status.ExpirationTimestamp)
	}
	c.recorded(t, node.name, pair.Leaf)

	t.Run("rotate and status", func(t *testing.T) {
		stdout, stderr, err := node.run(t.Context(), "rotate")
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		t.Logf("status:\n%s", stdout)
		if n, b := c.filedBy(t, csr.NodeUserPrefix+node.name), c.filedBy(t, bootstrap); n != 2 || b != 2 {
			t.Errorf("%d requests as the node and %d with the token, want 2 and 2", n, b)
		}
		s := node.status(t)
		if !s.Usable || s.Daemon || s.Server != c.url || len(s.Problems) != 0 || s.Certificates[0].CredentialID == csr.CredentialID(pair.Leaf) {
			t.Errorf("status %+v", s)
		}
	})
	t.Run("the unit's command", func(t *testing.T) { node.testUnit(t) })
	t.Run("another machine with a stolen token", func(t *testing.T) {
		thief := c.install(t, program, "node-1", theirs, nil)
		if got := thief.refused(t); !strings.Contains(got, "NotAMember") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("another node's name", func(t *testing.T) {
		second := c.install(t, program, "node-2", ours, nil)
		if got := second.refused(t); !strings.Contains(got, "NotAMember") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("a TPM of another maker", func(t *testing.T) {
		stranger := c.install(t, program, "node-3", tpmsim.Swtpm(t, tpmsim.Options{}), nil)
		if got := stranger.refused(t); !strings.Contains(got, "CertificateChain") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("an invalid token", func(t *testing.T) {
		guest := c.install(t, program, "node-4", theirs, nil)
		guest.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: "abcdef.fedcba9876543210"})
		if got := guest.refused(t); !strings.Contains(got, "Unauthorized") {
			t.Errorf("got %s", got)
		}
	})
	t.Run("a password that the program keeps", func(t *testing.T) { c.testManagedPassword(t, program, ca) })
	t.Run("a kubelet that goes around", func(t *testing.T) {
		controlplane.Write(t, node.dir, "kubelet.yaml", []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n"))
		const want = "rotateCertificates: true in "
		stdout, stderr, err := node.run(t.Context(), "credential")
		if err == nil || stdout != "" || !strings.Contains(stderr, want) || !strings.Contains(stderr, "without evidence") {
			t.Errorf("credential: %v, it prints %q, %q", err, stdout, stderr)
		}
		stdout, stderr, err = node.run(t.Context(), "rotate") // before its files are changed
		if err != nil || !strings.Contains(stdout, want) || !strings.Contains(stderr, want) {
			t.Errorf("rotate: %v, it prints %q, %q", err, stdout, stderr)
		}
	})
	r.checkLog(t)
}

// testUnit runs the command of the shipped systemd unit, with the paths of a test, and waits for
// the message of a service of Type=notify to systemd.
func (m *nodeMachine) testUnit(t *testing.T) {
	text := controlplane.Read(t, filepath.Join("..", "..", "kube", "deploy", "node", "kubelet-authenticator.service"))
	_, line, _ := strings.Cut(string(text), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if len(words) != 4 || filepath.Base(words[0]) != "kubelet-authenticator" || words[1] != "--config" {
		t.Fatalf("ExecStart=%s", line)
	}
	socket := listenNotify(t, m.dir)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, m.program, words[1], m.config, words[3])
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket.LocalAddr().String())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitNotified(t, socket)
	if !m.status(t).Daemon {
		t.Error("no daemon")
	}
	cancel()
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("it ends with %v", err)
	}
}

// listenNotify listens as systemd does for a service of Type=notify.
func listenNotify(t *testing.T, dir string) *net.UnixConn {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	return socket
}

// waitNotified waits for the message of a service that is ready.
func waitNotified(t *testing.T, socket *net.UnixConn) {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	told := make([]byte, 4096)
	for ready := false; !ready; {
		n, err := socket.Read(told)
		if err != nil {
			t.Fatal(err)
		}
		ready = strings.HasPrefix(string(told[:n]), "READY=1")
	}
}
