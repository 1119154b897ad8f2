package kube

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// A story is a cluster that kubeadm made, from its plain nodes to attestation that is enforced, and back.
// Its script is docs/enforcing.md, and docs/kubeadm.md for the nodes.
type story struct {
	*wholeCluster
	by       *installation        // the operator, and docs/enforcing.md
	kubeadm  *page                // docs/kubeadm.md
	workers  []*member            // those that are nodes
	newcomer *member              // joins later
	nodes    map[string]types.UID // as they were at first
	thief    *thief
}

// TestStory goes through a cluster's life with attestation: its nodes are plain and run static pods, they are
// observed, migrated by the command, and attestation is enforced; a machine joins, the cluster is upgraded, a
// node gets another TPM, everything is off at once, and attestation is uninstalled. While it is enforced, a thief
// with a bootstrap token asks for certificates, and gets none. No node is lost, and no pod restarts.
//
// One worker is there at first. With NODEATTEST_LONG there are two; without it, the cluster is neither upgraded nor
// turned off, for which other tests have clusters.
func TestStory(t *testing.T) {
	t.Parallel()
	whole := os.Getenv(longVar) != ""
	workers := 1
	if whole {
		workers = 2
	}
	s := beginStory(t, workers)
	s.observe(t)
	s.migrate(t)
	s.enforce(t)
	s.join(t)
	if whole {
		s.upgrade(t)
	}
	s.replaceBoard(t)
	if whole {
		s.turnOff(t)
	}
	s.checkThief(t)
	s.uninstall(t)
}

// auditFolder has the audit log and its policy, on the first machine.
const auditFolder = "/etc/kubernetes/audit"

// beginStory has kubeadm make a cluster with plain nodes, each of which runs static pods.
func beginStory(t *testing.T, workers int) *story {
	t.Helper()
	w := startWhole(t, func(m *member) string {
		m.put(t, auditFolder+"/policy.yaml", 0o600, []byte(auditPolicy))
		return fmt.Sprintf(", extraArgs: [{name: audit-policy-file, value: %[1]s/policy.yaml}, {name: audit-log-path, value: %[1]s/audit.log}]"+
			", extraVolumes: [{name: audit, hostPath: %[1]s, mountPath: %[1]s, pathType: Directory}]", auditFolder)
	})
	w.auditLog = filepath.Join(w.planes[0].dir, "disk", "etc", "upper", strings.TrimPrefix(auditFolder, "/etc"), "audit.log")
	s := &story{wholeCluster: w, by: &installation{cluster: w.cluster, page: partOfPage(t, "enforcing.md", "sh", "yaml"), operator: w.kubectl(t)},
		kubeadm: partOfPage(t, "kubeadm.md", "sh"), nodes: map[string]types.UID{}}
	for i := range workers {
		m := w.newMachine(t, fmt.Sprintf("worker-%d", i+1))
		m.kubeadmJoin(t, w.planes[0].token(t), containerdSocket, "kubeadm join ... --ignore-preflight-errors=FileAvailable--etc-kubernetes-kubelet.conf")
		m.putPod(t)
		s.workers = append(s.workers, m)
	}
	for _, m := range s.members() {
		w.ready(t, m.name)
		s.nodes[m.name] = s.nodeOf(t, m.name).UID
	}
	s.newcomer = w.newMachine(t, fmt.Sprintf("worker-%d", workers+1))
	s.containers(t) // they run
	s.writeFolder(t)
	s.thief = s.newThief(t)
	return s
}

// members are the machines that are nodes.
func (s *story) members() []*member { return slices.Concat(s.planes, s.workers) }

// writeFolder writes the operator's folder, with the nodes and the line that the newcomer prints in the inventory.
func (s *story) writeFolder(t *testing.T) {
	t.Helper()
	s.importController(t, append(s.members(), s.newcomer)...)
	s.writeKustomization(t, slices.Sorted(maps.Keys(s.nodes)), nil)
	inventory := string(controlplane.Read(t, filepath.Join(s.folder, "inventory.yaml")))
	line := s.newcomer.run(t, fmt.Sprintf("kubelet-authenticator identity -o inventory --node %s --device /run/tpm/%s", s.newcomer.name, filepath.Base(s.newcomer.device.TCTI())))
	controlplane.Write(t, s.folder, "inventory.yaml", []byte(inventory+line))
	s.by.folder = s.folder
	s.by.openShell(t)
}

func (s *story) nodeOf(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := new(corev1.Node)
	if err := s.admin.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// applies applies the operator's folder, and waits for the controller as the page has it.
func (s *story) applies(t *testing.T) {
	t.Helper()
	s.by.shell.run(t, s.by.apply)
	s.by.shell.run(t, s.by.page.take(t, "3. Enforce", "sh"))
}

// observe applies kube/deploy, which changes nothing: the plain nodes are on the list of those that are left, and
// the token gives a certificate.
func (s *story) observe(t *testing.T) {
	s.applies(t)
	eventually(t, func() error {
		out, err := s.by.shell.try(t, s.by.observed)
		if err == nil && strings.Count(out, "no machine is recorded") != len(s.nodes) {
			err = fmt.Errorf("%w: want %d nodes left", errNotYet, len(s.nodes))
		}
		return err
	})
	s.thief.asks(t.Context())
	s.signs(t, "observes")
}

// signs waits until the thief has a certificate.
func (s *story) signs(t *testing.T, while string) {
	t.Helper()
	var signed []string
	eventually(t, func() error {
		if signed = s.thief.signed(t); len(signed) == 0 {
			return fmt.Errorf("%w: the thief gets no certificate while the cluster %s", errNotYet, while)
		}
		return nil
	})
	_, report := s.thief.report(t)
	t.Logf("while the cluster %s, the thief gets certificates: %q\n%s", while, signed, report)
}

// migrate has the command migrate all nodes at once, and an operator approve their machines.
func (s *story) migrate(t *testing.T) {
	before := s.containers(t)
	var ends []func()
	for _, m := range s.members() {
		ends = append(ends, s.migrates(t, m))
	}
	eventually(t, func() error {
		out, err := s.by.operator.try(t.Context(), "pending")
		for _, m := range s.members() {
			if err == nil && !strings.Contains(out, string(identityOf(t, m.device))) {
				err = fmt.Errorf("%w: the machine of %s does not wait:\n%s", errNotYet, m.name, out)
			}
		}
		return err
	})
	out := s.by.shell.run(t, "kubectl nodeattest pending; kubectl nodeattest approve --existing-nodes "+strings.Join(slices.Sorted(maps.Keys(s.nodes)), " ")+" --yes")
	if want := fmt.Sprintf("%d approved, 0 refused", len(s.nodes)); !strings.Contains(out, want) {
		t.Errorf("want %s:\n%s", want, out)
	}
	for _, end := range ends {
		end()
	}
	s.checkPods(t, before)
	for _, m := range s.members() {
		m.leavesList(t, s.by.operator)
	}
	s.by.shell.run(t, s.by.observed+" --exit-code")
}

// migrates starts the command on a node, by the kubelet's own certificate. Its end must come after the approval.
func (s *story) migrates(t *testing.T, m *member) (end func()) {
	t.Helper()
	m.page, m.change = s.kubeadm, ownCertificate
	m.install(t, "", daemonFiles)
	report := s.watchReady(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	var out bytes.Buffer
	command := m.command(ctx, "kubelet-authenticator migrate 2>&1")
	command.Stdout = &out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := command.Wait(); err != nil {
			t.Fatalf("migrate on %s: %v: %s\n%s", m.name, err, out.Bytes(), m.log("kubelet"))
		}
		t.Logf("migrate on %s: %s", m.name, out.Bytes())
		report()
	}
}

// enforce adds the component. From here on the thief asks again and again.
func (s *story) enforce(t *testing.T) {
	before := s.containers(t)
	s.by.components(t, s.by.page.take(t, "3. Enforce", "yaml"))
	s.applies(t)
	s.thief.begin(t)
	for _, m := range s.members() {
		s.lives(t, m)
	}
	s.checkPods(t, withoutOurs(before))
}

// lives has a node renew its certificate, and its kubelet live by it.
func (s *story) lives(t *testing.T, m *member) {
	t.Helper()
	began := time.Now()
	m.eventually(t, func() error {
		out, err := m.command(t.Context(), "kubelet-authenticator rotate 2>&1").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", m.name, err, out)
		}
		return nil
	})
	m.alive(t, began)
}

// join has a machine join that was no node.
func (s *story) join(t *testing.T) {
	before := s.containers(t)
	m, began := s.newcomer, time.Now()
	m.page = s.kubeadm
	m.joins(t, s.planes[0].token(t), containerdSocket)
	m.alive(t, began)
	m.putPod(t)
	s.workers = append(s.workers, m)
	s.nodes[m.name] = s.nodeOf(t, m.name).UID
	s.checkPods(t, before)
}

// upgrade upgrades the cluster to the next release, with kubeadm's own commands. The pods of the control plane are new
// ones then.
func (s *story) upgrade(t *testing.T) {
	s.testUpgrade(t, s.members())
	s.ready(t, slices.Sorted(maps.Keys(s.nodes))...)
	s.containers(t)
}

// replaceBoard gives the first worker another TPM. The node is refused until an operator has rebound it.
func (s *story) replaceBoard(t *testing.T) {
	m := s.workers[0]
	old := identityOf(t, m.device)
	m.off(t)
	m.device = tpmsim.Swtpm(t, tpmsim.Options{CA: s.tpms, PersistEKs: true})
	m.machine.args[len(m.machine.args)-1] = filepath.Dir(strings.TrimPrefix(m.device.TCTI(), "swtpm:path="))
	m.on(t)
	m.alive(t, time.Now())
	if out, err := m.command(t.Context(), "kubelet-authenticator rotate 2>&1").CombinedOutput(); err == nil {
		t.Errorf("another TPM gets a certificate: %s", out)
	} else {
		t.Logf("another TPM: %s", out)
	}
	s.by.shell.run(t, fmt.Sprintf("kubectl nodeattest rebind %s --machine %s --replaces %s", m.name, identityOf(t, m.device), old))
	s.lives(t, m)
}

// turnOff takes the power of every machine away, and gives it back.
func (s *story) turnOff(t *testing.T) {
	for _, m := range s.members() {
		m.off(t)
	}
	for _, m := range s.members() {
		if err := m.device.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for _, m := range s.members() {
		m.on(t)
	}
	for _, m := range s.members() {
		m.alive(t, began)
		s.lives(t, m)
	}
	s.ready(t, slices.Sorted(maps.Keys(s.nodes))...)
	s.containers(t)
}

// checkThief ends the thief, whose requests of the time of enforcement have no certificate.
func (s *story) checkThief(t *testing.T) {
	s.thief.end()
	filed, report := s.thief.report(t)
	signed := s.thief.signed(t)
	t.Logf("enforced, the thief filed %d requests and got %d certificates:\n%s", filed, len(signed), report)
	if len(signed) != 0 || filed == 0 {
		t.Errorf("the thief has certificates of %q", signed)
	}
}

// uninstall deletes all that was applied. The nodes live on, and the token gives certificates again.
func (s *story) uninstall(t *testing.T) {
	before := s.containers(t)
	s.by.shell.run(t, s.by.page.take(t, "Uninstall", "sh"))
	if left := s.by.shell.run(t, "kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings -o name"); strings.Contains(left, "/node-attestation") {
		t.Errorf("left behind:\n%s", left)
	}
	began := time.Now()
	for _, m := range s.members() {
		m.alive(t, began)
	}
	s.checkPods(t, withoutOurs(before))
	var list corev1.NodeList
	if err := s.admin.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, node := range list.Items {
		if s.nodes[node.Name] != node.UID {
			t.Errorf("node %s is another one than before", node.Name)
		}
		delete(s.nodes, node.Name)
	}
	t.Logf("%d nodes, %d lost", len(list.Items), len(s.nodes))
	if len(s.nodes) != 0 {
		t.Errorf("lost are the nodes %v", s.nodes)
	}
	s.thief.asks(t.Context())
	s.signs(t, "has no attestation any more")
}
