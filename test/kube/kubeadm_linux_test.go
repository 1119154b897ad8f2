package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A member is a machine with systemd on which the files of kube/deploy/node and, where kubeadm
// is used, the packages' own are installed.
type member struct {
	*box
	c          *cluster
	controller *process // the Deployment's program in that cluster
	page       *page    // docs/kubeadm.md, for tests that go through it
	device     *tpmsim.TPM
	cut        func() // the wire to the API server
	host       int    // the last number of its address, in a cluster that has a network
	change     []string
}

// newMember starts a machine for a cluster. The changes are a test's to the shipped
// files: pairs of an old and a new text.
func (c *cluster) newMember(t *testing.T, name string, g *groups, device *tpmsim.TPM, change ...string) *member {
	t.Helper()
	m := &member{box: startBox(t, name, g, strings.TrimPrefix(device.TCTI(), "swtpm:path=")), c: c, device: device, change: change}
	m.put(t, "/usr/local/bin/kubelet-authenticator", 0o755, read(t, buildProgram(t, "kubelet-authenticator")))
	return m
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text := controlplane.Read(t, path)
	return text
}

// address is where the API server listens.
func (c *cluster) address() string { return strings.TrimPrefix(c.url, "https://") }

// daemonFiles and kubeletFiles are the files of kube/deploy/node, and their places.
var (
	daemonFiles = map[string]string{
		"kubelet-authenticator.yaml":    "/etc/kubernetes/kubelet-authenticator.yaml",
		"kubelet-authenticator.conf":    "/etc/kubernetes/kubelet-authenticator.conf",
		"kubelet-authenticator.service": "/etc/systemd/system/kubelet-authenticator.service",
	}
	kubeletFiles = map[string]string{
		"kubelet.conf":    "/etc/kubernetes/kubelet.conf",
		"10-kubeadm.conf": "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
	}
)

// install puts files of kube/deploy/node where the page has them. The changes to them are the ones that
// they say has to be.
func (m *member) install(t *testing.T, token string, files map[string]string) {
	t.Helper()
	change := m.changes(t, token)
	for name, path := range files {
		m.put(t, path, 0o600, []byte(change.Replace(string(read(t, filepath.Join("..", "..", "kube", "deploy", "node", name))))))
	}
	m.run(t, "systemctl daemon-reload")
}

// changes writes the CA of the machine's TPM, and returns the changes to files of kube/deploy/node.
func (m *member) changes(t *testing.T, token string) *strings.Replacer {
	t.Helper()
	m.put(t, "/etc/kubernetes/ek-chain.pem", 0o644, controlplane.CertificatePEM(m.device.CA().EKIntermediate()))
	return strings.NewReplacer(append(slices.Clone(m.change), "nodeName: node-1", "nodeName: "+m.name, "/dev/tpmrm0\n", "/run/tpm/"+filepath.Base(m.device.TCTI())+"\n",
		`intermediates: ""`, "intermediates: /etc/kubernetes/ek-chain.pem", "lifetime: 24h", "lifetime: 10m",
		"https://control-plane.example:6443", m.c.url, `token: ""`, "token: "+token)...)
}

// joins follows the page: it installs the node's files and has kubeadm join.
func (m *member) joins(t *testing.T, token, runtime string) {
	t.Helper()
	m.install(t, token, daemonFiles)
	m.install(t, token, kubeletFiles)
	m.run(t, "systemctl disable kubelet")
	m.kubeadmJoin(t, token, runtime, m.page.take(t, "Join", "sh"))
}

// status asks the authenticator on the machine.
func (m *member) status(t *testing.T) *authenticator.Status {
	t.Helper()
	out, _ := m.command(t.Context(), "kubelet-authenticator status -o json 2>/dev/null").Output() // it fails where there is no certificate
	s := new(authenticator.Status)
	if err := json.Unmarshal(out, s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// alive waits until the kubelet has renewed its Lease since a time: it is a node by a credential
// that works.
func (m *member) alive(t *testing.T, since time.Time) {
	t.Helper()
	m.eventually(t, func() error { return m.c.leaseSince(t, m.name, since) })
	t.Logf("the node lives %s later, by %s", time.Since(since).Round(100*time.Millisecond), strings.Replace(strings.TrimSpace(m.run(t, "kubelet --version")), "Kubernetes", "kubelet", 1))
}

// eventually repeats a step. If it never succeeds, the units' logs are shown.
func (m *member) eventually(t *testing.T, step func() error) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("kubelet-authenticator:\n%s\nkubelet:\n%s", m.log("kubelet-authenticator"), m.log("kubelet"))
		}
	}()
	eventually(t, step)
}

// kubeadmPage reads the blocks of docs/kubeadm.md that this test runs. Under a heading that is not here, there may
// be none.
func kubeadmPage(t *testing.T) *page {
	t.Helper()
	tests := map[string]string{
		"Join":                              "TestKubeadm",
		"Machines of the control plane":     "TestKubeadm",
		"The first machine":                 "TestKubeadmControlPlane",
		"Join the control plane":            "TestKubeadmControlPlane",
		"Upgrades":                          "TestKubeadmControlPlane",
		"After all certificates have ended": "TestKubeadmAllEnded",
		"A new CA for the cluster":          "TestKubeadmNewCA",
		"Both CAs are known":                "TestKubeadmNewCA",
		"The new CA signs":                  "TestKubeadmNewCA",
		"The old CA leaves":                 "TestKubeadmNewCA",
	}
	p := readPage(t, "kubeadm.md", "sh")
	for _, b := range p.blocks {
		if tests[b.heading] != t.Name() {
			b.taken = tests[b.heading] != "" // by that test
		}
	}
	return p
}

// checkTable compares the files of the page's table, and the program, with the installed ones.
func (m *member) checkTable(t *testing.T) {
	t.Helper()
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(/[^`]+)`").FindAllSubmatch(read(t, "../../docs/kubeadm.md"), -1) {
		listed = append(listed, string(row[1]))
	}
	installed := slices.Sorted(maps.Values(daemonFiles))
	installed = append(installed, slices.Sorted(maps.Values(kubeletFiles))...)
	installed = append(installed, "/usr/local/bin/kubelet-authenticator")
	slices.Sort(listed)
	slices.Sort(installed)
	if !slices.Equal(listed, installed) {
		t.Errorf("the page has the files\n%q, and the test installs\n%q", listed, installed)
	}
}

// TestKubeadm goes through docs/kubeadm.md with kubeadm, kubelet and systemd, as they are, and the
// files of kube/deploy/node, from the join to the end of the node's life in that cluster.
func TestKubeadm(t *testing.T) {
	t.Parallel()
	g := boxNeeds(t, 2)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c, signer := kubeadmCluster(t, "75s")
	m := c.newMember(t, "worker-1", g, device)
	m.page = kubeadmPage(t)
	m.checkTable(t)
	runtime := startRuntime(t, m.dir)
	m.installKubeadm(t)
	token := m.enforced(t)
	if !t.Run("join", func(t *testing.T) {
		began := time.Now()
		m.joins(t, token, runtime)
		m.alive(t, began)
		if text := m.run(t, "cat /etc/kubernetes/kubelet.conf; ls /etc/kubernetes"); !strings.Contains(text, "args: [credential]") || strings.Contains(text, "bootstrap-kubelet.conf") {
			t.Errorf("kubeadm leaves %s", text)
		}
		if text := m.run(t, "kubectl --kubeconfig /etc/operator/admin.conf get attestednodes"); !regexp.MustCompile(`worker-1 +Bound +ek:sha256:[0-9a-f]+ +Software `).MatchString(text) {
			t.Errorf("the record:\n%s", text)
		}
		if text := m.controller.text(t); !strings.Contains(text, "kubeadm:node-autoapprove-bootstrap") {
			t.Errorf("the controller does not name kubeadm's bindings:\n%s", m.controller.tail())
		}
	}) {
		return
	}
	t.Run("renewal after the join", func(t *testing.T) { m.testRenewal(t) })
	t.Run("upgrade node", func(t *testing.T) { m.testUpgrade(t) })
	t.Run("control plane after the end of all certificates", func(t *testing.T) { m.testControlPlane(t) })
	t.Run("two CAs in ca.crt", func(t *testing.T) { m.testTwoCAs(t) })
	m.checkEvidence(t)
	refused := strings.Count(signer.text(t), "ValidatingAdmissionPolicy 'node-attestation-approval'")
	if t.Logf("automatic approval was refused %d times", refused); refused == 0 {
		t.Error("kubeadm's automatic approval was never refused")
	}
	t.Run("reset and join of another cluster", func(t *testing.T) {
		// It leaves with a certificate that the new cluster does not take, and that lasts.
		signer.stop(t)
		c.signingDuration = "1h"
		c.startSigner(t)
		m.eventually(t, func() error { return m.command(t.Context(), "kubelet-authenticator rotate").Run() })
		// One that has come just now is not asked about yet.
		m.run(t, `sed -i "1s/received [^,]*/received $(date -u -d '10 minutes ago' +%FT%TZ)/" /var/lib/kubelet-authenticator/client.pem; head -n 1 /var/lib/kubelet-authenticator/client.pem`)
		m.run(t, "kubeadm reset -f --cri-socket "+runtime)
		m.c, _ = kubeadmCluster(t, "1h")
		token := m.enforced(t)
		began := time.Now()
		m.joins(t, token, runtime)
		m.alive(t, began)
		m.checkEvidence(t)
	})
}

// testRenewal: kubeadm has removed bootstrap-kubelet.conf, and a token does not last.
func (m *member) testRenewal(t *testing.T) {
	m.run(t, "kubectl --kubeconfig /etc/operator/admin.conf -n kube-system delete secret --field-selector type=bootstrap.kubernetes.io/token")
	first := m.status(t).Certificates[0]
	m.eventually(t, func() error {
		if now := m.status(t).Certificates[0]; !now.Usable || now.CredentialID == first.CredentialID {
			return fmt.Errorf("%w: until %s, it is %s: %s", errNotYet, now.NotAfter, time.Now(), now.LastError)
		}
		return nil
	})
	m.alive(t, first.NotAfter.Add(-time.Second))
}

// testUpgrade: kubeadm writes rotateCertificates: true.
func (m *member) testUpgrade(t *testing.T) {
	m.run(t, "kubeadm upgrade node --ignore-preflight-errors=all")
	if text := m.run(t, "cat /var/lib/kubelet/config.yaml"); !strings.Contains(text, "rotateCertificates: true") {
		t.Logf("kubeadm no longer turns rotation on:\n%s", text)
	}
	began := time.Now()
	m.run(t, "systemctl restart kubelet-authenticator kubelet")
	m.alive(t, began)
	m.run(t, "kubelet-authenticator rotate")
	m.alive(t, time.Now())
}

// testControlPlane has the machine start when its certificate has ended, and with an API server
// that is one of its own pods: it is there when the kubelet is.
func (m *member) testControlPlane(t *testing.T) {
	if limit := strings.TrimSpace(m.run(t, "systemctl show -P TimeoutStartUSec kubelet-authenticator")); limit != "1min" {
		t.Errorf("the kubelet waits for the authenticator: %s", limit)
	} else if os.Getenv(longVar) == "" { // a tenth of that
		m.put(t, "/etc/systemd/system/kubelet-authenticator.service.d/short.conf", 0o644, []byte("[Service]\nTimeoutStartSec=6\n"))
	}
	end := m.status(t).Certificates[0].NotAfter
	m.off(t)
	m.cut()
	if err := m.device.Reset(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(end) + time.Second)
	began := time.Now()
	m.on(t)
	m.eventually(t, func() error {
		out, err := m.command(t.Context(), "systemctl is-active kubelet").CombinedOutput()
		if err != nil {
			return fmt.Errorf("the kubelet does not start: %w: %s", err, bytes.TrimSpace(out))
		}
		return nil
	})
	t.Logf("the kubelet has started after %s", time.Since(began).Round(100*time.Millisecond))
	m.cut = m.connect(t, m.c.address())
	m.run(t, "cp /etc/operator/admin.conf /etc/kubernetes/admin.conf") // as kubeadm has it on such a machine
	words := strings.Fields(m.run(t, m.page.take(t, "Machines of the control plane", "sh")))
	m.run(t, "rm /etc/kubernetes/admin.conf; sed -i 's/token: .*/token: "+words[len(words)-1]+"/' /etc/kubernetes/kubelet-authenticator.conf")
	m.alive(t, began)
}

// testTwoCAs is the first step of a change of the cluster's CA.
func (m *member) testTwoCAs(t *testing.T) {
	second := controlplane.CertificatePEM(controlplane.NewAuthority(t).Cert)
	for name, order := range map[string]string{"last": "cat /run/ca.crt /run/second.crt", "first": "cat /run/second.crt /run/ca.crt"} {
		m.put(t, "/run/second.crt", 0o600, second)
		out, err := m.command(t.Context(), "cp /etc/kubernetes/pki/ca.crt /run/ca.crt; "+order+" >/etc/kubernetes/pki/ca.crt; kubelet-authenticator rotate; cp /run/ca.crt /etc/kubernetes/pki/ca.crt").CombinedOutput()
		if err != nil {
			t.Errorf("the new CA %s: %v: %s", name, err, out)
		}
		m.run(t, "cp /run/ca.crt /etc/kubernetes/pki/ca.crt")
	}
}

// checkEvidence holds that every request for a node's certificate came with evidence.
func (m *member) checkEvidence(t *testing.T) {
	t.Helper()
	all := m.c.requests(t)
	signed := 0
	for i := range all {
		request := &all[i]
		if request.Spec.SignerName == csr.SignerKubeAPIServerClientKubelet && !bytes.Contains(request.Spec.Request, []byte("ATTESTATION")) {
			t.Errorf("%s asks for a certificate without evidence, as %s", request.Name, request.Spec.Username)
		}
		if len(request.Status.Certificate) != 0 {
			signed++
		}
	}
	t.Logf("%d requests, %d certificates", len(all), signed)
	m.controller.checkLog(t)
}

// ownCertificate has the kubelet's own certificate in the authenticator's kubeconfig.
var ownCertificate = []string{`token: ""`, "client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n      client-key: /var/lib/kubelet/pki/kubelet-client-current.pem"}

// plainMember is a node that kubeadm joined without evidence, in a cluster that observes. The authenticator
// is installed, and its only credential is the node's own certificate.
func plainMember(t *testing.T) *member {
	t.Helper()
	g := boxNeeds(t, 1)
	device := tpmsim.Swtpm(t, tpmsim.Options{PersistEKs: true})
	c, _ := kubeadmCluster(t, "1h")
	m := c.newMember(t, "worker-1", g, device, ownCertificate...)
	runtime := startRuntime(t, m.dir)
	m.installKubeadm(t)
	m.cut = m.connect(t, c.address())
	token := m.upload(t)
	m.controller = c.deploy(t, device, m.name)
	began := time.Now()
	m.kubeadmJoin(t, token, runtime, "kubeadm join ... --ignore-preflight-errors=FileAvailable--etc-kubernetes-kubelet.conf")
	m.alive(t, began)
	m.install(t, "", daemonFiles)
	return m
}

// pendingMachine returns the machine that waits for the operator's approval.
func (m *member) pendingMachine(t *testing.T, o *operator) (machine string) {
	t.Helper()
	m.eventually(t, func() error {
		out, err := o.try(t.Context(), "pending")
		found := regexp.MustCompile(`(?m)^\S+ +` + m.name + ` +(ek:sha256:\S+)`).FindStringSubmatch(out)
		if err != nil || found == nil {
			return errors.Join(errNotYet, err, errors.New(out))
		}
		machine = found[1]
		return nil
	})
	return machine
}

// survivesEnforcing has the cluster enforce: the node renews and lives on.
func (m *member) survivesEnforcing(t *testing.T) {
	t.Helper()
	m.controller.checkLog(t)
	m.controller.stop(t)
	m.controller = m.c.deploy(t, m.device, m.name, "enforce")
	m.run(t, "kubelet-authenticator rotate")
	m.alive(t, time.Now())
	m.controller.checkLog(t)
}

// TestKubeadmMigration has a node that joined without evidence attest, in a cluster that observes: with
// its own certificate as the only credential, after an operator has approved its machine, while its
// kubelet runs. Then the cluster enforces.
func TestKubeadmMigration(t *testing.T) {
	t.Parallel()
	m := plainMember(t)
	m.run(t, "systemctl enable kubelet-authenticator; systemctl start --no-block kubelet-authenticator")
	o := m.c.newOperator(t)
	machine := m.pendingMachine(t, o)
	m.alive(t, time.Now())
	o.run(t, "approve worker-1 --machine "+machine+" --existing-node")
	m.usable(t)
	m.install(t, "", kubeletFiles)
	m.run(t, `sed -i '/client-certificate:/d; s/client-key: .*/token: ""/' /etc/kubernetes/kubelet-authenticator.conf`)
	began := time.Now()
	m.run(t, "systemctl restart kubelet; rm /var/lib/kubelet/pki/kubelet-client-*")
	m.alive(t, began)
	m.survivesEnforcing(t)
}
