package kube

import (
	"bytes"
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

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/program/controlplane/bypass"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An installation is an operator's installation on a cluster whose nodes are all plain.
type installation struct {
	*cluster
	operator *operator
	node     *attesttest.Node
	device   *tpmsim.TPM
	page     *page     // docs/enforcing.md
	dir      string    // where its commands run
	shell    *shell    // in which they run
	folder   string    // the kustomization, which the page calls my-cluster
	apply    string    // the command that applies it
	observed string    // the command that lists who is left
	program  string    // the controller
	plain1   *csr.Spec // a plain node's request
}

// TestObserve goes through docs/enforcing.md, command by command, on a cluster that runs: no node is
// refused, nodes attest as they come, and who is left is listed. Then it is enforced, and taken
// back, and taken away and put on again.
func TestObserve(t *testing.T) {
	t.Parallel()
	w := &installation{cluster: startCluster(t), program: buildProgram(t, "node-attestation-controller")}
	clusterID := w.clusterID(t)
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	w.node = attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: "node-1", Road: attest.RoadEK, ClusterID: clusterID, ExpirationSeconds: 3600,
		AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	w.node.Subject.SignerName = csr.SignerKubeAPIServerClientKubelet
	var err error
	if w.node.Subject.Request, err = csr.Create(csr.PurposeClient, w.node.Key, w.node.Name, csr.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.device = device
	w.knowMachines(t, device, "node-1", newNode)
	w.operator = &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: w.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
	w.folder = overlay(t, w.node, controlplane.FreePorts(t, 4))
	w.page = readPage(t, "enforcing.md", "sh", "yaml")
	w.openShell(t)
	w.plain1 = w.plainFor(t, "plain-1", csr.SignerKubeAPIServerClientKubelet)

	w.makeToken(t, attesttest.TokenID)
	w.binds(t, "kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(csr.BootstrappersGroup))
	w.autoApproval(t)
	w.startSigner(t, "--controllers=namespace-controller")
	w.shell.run(t, w.apply)
	r := w.deployed(t, "observes")
	bootstrapper := w.client(t, w.bearer(t, attesttest.TokenID))
	w.plainNodes(t, bootstrapper)
	w.joins(t, bootstrapper, w.node)
	t.Run("who is left", func(t *testing.T) { w.testLeft(t, r, bootstrapper) })
	t.Run("enforced and taken back", func(t *testing.T) { w.testEnforced(t, bootstrapper, r) })
	r.checkLog(t)
	manifests := manifests(t, "observe.yaml")
	w.checkRights(t, manifests)
	t.Run("taken away and put on again", func(t *testing.T) { w.testUninstall(t, bootstrapper) })
}

// openShell starts a shell with an administrator's tools: kubectl with its plugin, the cluster's
// kubeconfig and the folder my-cluster. It takes the page's first commands.
func (w *installation) openShell(t *testing.T) {
	t.Helper()
	w.dir = t.TempDir()
	if err := os.Symlink(w.folder, filepath.Join(w.dir, "my-cluster")); err != nil {
		t.Fatal(err)
	}
	w.shell = startShell(t, w.dir, "USER=alice", "KUBECONFIG="+w.operator.kubeconfig, "PATH="+strings.Join([]string{w.operator.dir, filepath.Dir(w.operator.kubectl), os.Getenv("PATH")}, ":"))
	commands := strings.Split(strings.TrimSpace(w.page.take(t, "1. Observe", "sh")), "\n")
	if len(commands) != 2 {
		t.Fatalf("%d commands, want one that applies and one that lists: %q", len(commands), commands)
	}
	w.apply, w.observed = commands[0], commands[1]
}

// deployed runs the Deployment's program with the Deployment's flags, until it is ready.
func (w *installation) deployed(t *testing.T, name string) *replica {
	t.Helper()
	args := w.deployment(t, controller.DefaultName).Spec.Template.Spec.Containers[0].Args
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return strings.HasPrefix(arg, "--config=") })
	r := w.startController(t, w.program, name, func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["controller"].(map[string]any)["insecureAllowWaysAround"] = false
	}, args...)
	r.isReady(t)
	return r
}

// plainNodes has a plain node join by a bootstrap token and renew its certificate.
func (w *installation) plainNodes(t *testing.T, bootstrapper client.Client) {
	t.Helper()
	kubelet := w.client(t, w.user(t, csr.NodeUserPrefix+"plain-1", csr.NodesGroup))
	for name, as := range map[string]client.Client{"joins": bootstrapper, "renews": kubelet} {
		if object := decided(t, w.admin, file(t, as, w.plain1)); len(object.Status.Certificate) == 0 {
			t.Errorf("a plain node %s: %+v", name, object.Status.Conditions)
		}
	}
}

// testLeft checks the list for the operator: the plain node, a Node that asks for nothing, and
// the ways around; not the node that has attested.
func (w *installation) testLeft(t *testing.T, r *replica, bootstrapper client.Client) {
	if err := w.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old-1"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		out, err := w.shell.try(t, w.observed)
		if err != nil {
			return err
		}
		for text, want := range map[string]bool{"plain-1": true, "old-1": true, "no machine is recorded": true, "\nnode-1 ": false} {
			if strings.Contains(out, text) != want {
				return fmt.Errorf("%q: %t\n%s", text, !want, out)
			}
		}
		return nil
	})
	if out, err := w.shell.try(t, w.observed+" --exit-code"); err == nil {
		t.Errorf("observed --exit-code succeeds while nodes are left:\n%s", out)
	}
	out := w.shell.run(t, "kubectl nodeattest nodes")
	for _, line := range []string{`(?m)^old-1 +Plain *$`, `(?m)^node-1 +Attested +tpm .* 20\S+Z *$`} {
		if !regexp.MustCompile(line).MatchString(out) {
			t.Errorf("nodes has no line %s:\n%s", line, out)
		}
	}
	eventually(t, func() error { // the policies may have come into force after the nodes have joined
		if err := bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll); err != nil {
			return err
		}
		if noted := w.auditAnnotations(t, "validation.policy.admission.k8s.io/validation_failure"); !strings.Contains(fmt.Sprint(noted), "asks for its client certificate with evidence") {
			return fmt.Errorf("the audit log says nothing of what would be refused: %q", noted)
		}
		return nil
	})
	if ways := counted(t, r, "nodeattest_ways_around"); ways[`way="AutoApproval"`] != 2 {
		t.Errorf("ways around: %v, want kubeadm's two", ways)
	}
}

// testEnforced adds the component enforce, and takes it out again.
func (w *installation) testEnforced(t *testing.T, bootstrapper client.Client, before *replica) {
	w.components(t, w.page.take(t, "3. Enforce", "yaml"))
	w.shell.run(t, w.apply)
	if args := w.deployment(t, controller.DefaultName).Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--observe") {
		t.Errorf("the Deployment observes: %q", args)
	}
	r := w.deployed(t, "enforces")
	w.rolledOut(t)
	w.shell.run(t, w.page.take(t, "3. Enforce", "sh"))
	before.stop(t)
	eventually(t, func() error {
		if err := bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "asks for its client certificate with evidence") {
			return fmt.Errorf("a plain request: %v, want it refused", err)
		}
		return nil
	})
	if findings := w.finds(t); slices.ContainsFunc(findings, func(f bypass.Finding) bool { return !f.Guarded }) {
		t.Errorf("enforced, there are %v", findings)
	}
	t.Run("in an emergency", func(t *testing.T) { w.testEmergency(t) })
	t.Run("a challenge key has leaked", func(t *testing.T) { w.testLeaked(t, bootstrapper) })
	t.Run("a token for one machine", func(t *testing.T) { w.testToken(t) })
	t.Run("a node that was off for too long", func(t *testing.T) { w.testOff(t) })
	r.checkLog(t)
	r.stop(t)
	t.Run("applied without the component", func(t *testing.T) { w.testWithout(t, bootstrapper) })
	w.shell.run(t, w.page.take(t, "To go back", "sh"))
	w.shell.run(t, w.apply)
	eventually(t, func() error { return bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll) })
	w.plainNodes(t, bootstrapper)
}

// testWithout applies manifests without the component enforce: kube/deploy alone, as one may to
// upgrade, and a kustomization that has lost its line. Neither goes back: a bootstrap token gets no
// certificate without evidence, the inventory is whole, and the Deployment's program enforces.
func (w *installation) testWithout(t *testing.T, bootstrapper client.Client) {
	inventory := func() map[string]string {
		m := new(corev1.ConfigMap)
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "node-attestation"}, m); err != nil {
			t.Fatal(err)
		}
		return m.Data
	}
	before := inventory()
	refused := func(what string) {
		t.Helper()
		for range 10 { // the API server reads bindings within a second
			if err := bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll); !apierrors.IsForbidden(err) {
				t.Fatalf("%s: a plain request: %v, want it refused", what, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if !maps.Equal(inventory(), before) {
			t.Errorf("%s: the configuration is another one", what)
		}
		if args := w.deployment(t, controller.DefaultName).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--observe") {
			t.Errorf("%s: the Deployment has %q, want one that observes", what, args)
		}
	}
	w.shell.run(t, "kubectl apply -k "+w.shipped(t))
	refused("kube/deploy alone")
	w.components(t, "components: []\n")
	w.shell.run(t, w.apply)
	refused("without its line")
	r := w.deployed(t, "in spite of --observe")
	if object := decided(t, w.admin, file(t, w.admin, w.plain1)); len(object.Status.Certificate) != 0 || object.Status.Conditions[0].Type != certificatesv1.CertificateDenied {
		t.Errorf("a plain request of an administrator: %+v, want it denied", object.Status)
	}
	if text := r.text(t); !strings.Contains(text, "--observe has no effect") {
		t.Errorf("it does not say that it enforces:\n%s", text)
	}
	w.joins(t, bootstrapper, w.node)
	r.checkLog(t)
	r.stop(t)
}

// shipped is the path of kube/deploy.
func (w *installation) shipped(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "kube", "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// components replaces the components of the kustomization by the page's.
func (w *installation) components(t *testing.T, line string) {
	t.Helper()
	path := filepath.Join(w.folder, "kustomization.yaml")
	text := string(read(t, path))
	shipped := regexp.MustCompile(`(?m)^resources: \[(.*)/kube/deploy\]$`).FindStringSubmatch(text)
	text = regexp.MustCompile(`(?m)^components: .*\n`).ReplaceAllLiteralString(text, strings.ReplaceAll(line, "...", shipped[1]))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// rolledOut says of the Deployment what Kubernetes' controller says when its replicas are ready.
func (w *installation) rolledOut(t *testing.T) {
	t.Helper()
	d := w.deployment(t, controller.DefaultName)
	n := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
	if err := w.admin.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// testEmergency has an administrator approve a node without evidence, and the certificate comes.
func (w *installation) testEmergency(t *testing.T) {
	node := w.plainFor(t, "plain-2", csr.SignerKubeAPIServerClientKubelet)
	w.shell.run(t, "cat >node.csr <<EOF\n"+string(node.Request)+"EOF")
	w.shell.run(t, "( set -e\n"+strings.ReplaceAll(w.page.take(t, "In an emergency", "sh"), "NAME", "plain-2")+")")
	object := new(certificatesv1.CertificateSigningRequest)
	if err := w.admin.Get(t.Context(), client.ObjectKey{Name: "plain-2-by-hand"}, object); err != nil {
		t.Fatal(err)
	}
	if decided(t, w.admin, object); len(object.Status.Certificate) == 0 {
		t.Errorf("no certificate: %+v", object.Status)
	}
	eventually(t, func() error {
		if said := w.auditAnnotations(t, "node-attestation-approval/break-glass"); !slices.Contains(said, "alice: the TPM is broken, ticket 7") {
			return fmt.Errorf("the audit log says nothing of it: %q", said)
		}
		return nil
	})
}

// testOff makes a token for a node whose machine is recorded, and lists the provider IDs.
func (w *installation) testOff(t *testing.T) {
	if out := w.shell.run(t, w.page.take(t, "Provider IDs that differ", "sh")); !strings.Contains(out, w.node.Name) {
		t.Errorf("%s is not listed: %s", w.node.Name, out)
	}
	w.shell.run(t, strings.ReplaceAll(w.page.take(t, "A node that was off for too long", "sh"), "NODE", w.node.Name))
	text := controlplane.Read(t, filepath.Join(w.dir, "token"))
	if _, err := bootstraptoken.Parse(strings.TrimSpace(string(text))); err != nil {
		t.Error(err)
	}
}

// newNode is the name of a machine that joins with a token for it alone.
const newNode = "node-7.example"

// testToken makes the tokens of the page for a machine that has not joined: with each of them the machine
// gets that name, and another name is refused.
func (w *installation) testToken(t *testing.T) {
	machine := tpmsim.Swtpm(t, tpmsim.Options{CA: w.device.CA()})
	w.shell.run(t, "( set -e\n"+strings.ReplaceAll(w.page.take(t, "A token for one machine", "sh"), "NAME", strings.ReplaceAll(newNode, ".", ":"))+")")
	for _, file := range []string{"token", "join-token"} {
		token := strings.TrimSpace(string(controlplane.Read(t, filepath.Join(w.dir, file))))
		as := w.client(t, w.withToken(t, token))
		if _, err := challenged(t, as, w.nodeOn(t, machine, "node-1")); !errors.Is(err, errNotChallenged) || !strings.Contains(err.Error(), "RequesterOtherNode") {
			t.Errorf("%s, for another node: %v, want it denied with RequesterOtherNode", file, err)
		}
		w.joins(t, as, w.nodeOn(t, machine, newNode))
	}
}

// testLeaked takes the challenge keys away: there are others, and a node attests with these.
func (w *installation) testLeaked(t *testing.T, bootstrapper client.Client) {
	keys := func() (*corev1.Secret, error) {
		s := new(corev1.Secret)
		return s, w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "challenge-keys"}, s)
	}
	leaked, err := keys()
	if err != nil || len(leaked.Data) == 0 {
		t.Fatalf("%d challenge keys, %v", len(leaked.Data), err)
	}
	w.shell.run(t, w.page.take(t, "A challenge key has leaked", "sh"))
	eventually(t, func() error {
		now, err := keys()
		if err == nil && len(now.Data) == 0 {
			err = errNotYet
		}
		for name, key := range now.Data {
			if bytes.Equal(key, leaked.Data[name]) {
				t.Fatalf("%s is still there", name)
			}
		}
		return err
	})
	w.joins(t, bootstrapper, w.node)
}

// testUninstall deletes the applied objects, with a record of a node among them, and applies them again.
func (w *installation) testUninstall(t *testing.T, bootstrapper client.Client) {
	if out, err := w.operator.plain(t.Context(), "delete", "attestednode", "node-1", "--timeout=10s"); err == nil || !strings.Contains(err.Error(), "kubectl nodeattest release") {
		t.Errorf("a record was deleted in passing: %s, %v", out, err)
	}
	began := time.Now()
	w.shell.run(t, w.page.take(t, "Uninstall", "sh"))
	t.Logf("deleted in %s", time.Since(began).Round(time.Second))
	if err := w.admin.List(t.Context(), &v1alpha1.AttestedNodeList{}); err == nil {
		t.Error("the records are still served")
	}
	if left := w.shell.run(t, "kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings -o name"); strings.Contains(left, "/node-attestation") {
		t.Errorf("left behind:\n%s", left)
	}
	w.plainNodes(t, bootstrapper) // as if nothing had been there
	eventually(t, func() error {
		_, err := w.shell.try(t, w.apply)
		return err
	})
	w.deployed(t, "again")
	w.joins(t, bootstrapper, w.node)
	w.testLarge(t)
}

// testLarge applies an inventory that is too large for the annotation of kubectl apply.
func (w *installation) testLarge(t *testing.T) {
	t.Helper()
	var text strings.Builder
	text.WriteString("machines:\n")
	for i := range 3000 {
		fmt.Fprintf(&text, "- nodeName: node-%05d.example.com\n  identity: ek:sha256:%064x\n", i, i)
	}
	controlplane.Write(t, w.folder, "inventory.yaml", []byte(text.String()))
	if out, err := w.shell.try(t, w.apply); err == nil || !strings.Contains(out+err.Error(), "metadata.annotations: Too long") {
		t.Errorf("%d bytes: %v\n%s", text.Len(), err, out)
	}
	apply := w.page.take(t, "Large inventories", "sh")
	w.shell.run(t, apply)
	m := new(corev1.ConfigMap)
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "node-attestation"}, m); err != nil || m.Data["inventory.yaml"] != text.String() {
		t.Errorf("%d bytes of %d, %v", len(m.Data["inventory.yaml"]), text.Len(), err)
	}
	w.testParts(t, apply)
}
