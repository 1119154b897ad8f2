package kube

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/bypass"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// An installation is what an operator has put on a cluster whose nodes are all plain.
type installation struct {
	*cluster
	operator *operator
	node     *attesttest.Node
	folder   string    // the kustomization
	enforced string    // that with the component enforce
	program  string    // the controller
	plain1   *csr.Spec // a plain node's request
}

// TestObserve puts everything on a cluster that runs: nobody is refused, nodes attest as they
// come, and who is left is listed. Then it is enforced and taken back, and taken away and put
// on again, each with one command.
func TestObserve(t *testing.T) {
	t.Parallel()
	w := &installation{cluster: startCluster(t), program: buildProgram(t, "node-attestation-controller")}
	clusterID, err := attest.ClusterID(w.ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	device := tpmsim.Swtpm(t, tpmsim.Options{})
	w.node = attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: "node-1", Road: attest.RoadEK, ClusterID: clusterID, ExpirationSeconds: 3600,
		AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	w.node.Subject.SignerName = csr.SignerKubeAPIServerClientKubelet
	if w.node.Subject.Request, err = csr.Create(csr.PurposeClient, w.node.Key, w.node.Name, csr.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.knowMachines(t, device, "node-1")
	w.operator = &operator{kubectl: filepath.Join(controlplane.Binaries(t), "kubectl"), dir: filepath.Dir(buildProgram(t, "kubectl-nodeattest")),
		kubeconfig: w.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")}
	ports := freePorts(t, 4)
	w.folder, w.enforced = overlay(t, w.node, ports), overlay(t, w.node, ports, "enforce")
	w.plain1 = w.plainFor(t, "plain-1", csr.SignerKubeAPIServerClientKubelet)

	w.makeToken(t, attesttest.TokenID)
	w.binds(t, "kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(csr.BootstrappersGroup))
	w.autoApproval(t)
	w.startSigner(t, "--controllers=namespace-controller")
	w.kubectl1(t, "apply", "-k", w.folder)
	r := w.deployed(t, "observes")
	bootstrapper := w.client(t, w.bearer(t, attesttest.TokenID))
	w.plainNodes(t, bootstrapper)
	w.joins(t, bootstrapper, w.node)
	t.Run("who is left", func(t *testing.T) { w.testLeft(t, r, bootstrapper) })
	t.Run("enforced and taken back", func(t *testing.T) { w.testEnforced(t, bootstrapper) })
	r.checkLog(t)
	manifests, err := deploy.Manifests("observe.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.checkRights(t, manifests)
	t.Run("taken away and put on again", func(t *testing.T) { w.testUninstall(t, bootstrapper) })
}

// kubectl1 runs one command of kubectl, which must succeed.
func (w *installation) kubectl1(t *testing.T, args ...string) string {
	t.Helper()
	out, err := w.operator.plain(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
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

// testLeft looks at what an operator is told: the plain node, a Node that asks for nothing, and
// the ways around; not the node that has attested.
func (w *installation) testLeft(t *testing.T, r *replica, bootstrapper client.Client) {
	if err := w.admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old-1"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		out, err := w.operator.try(t.Context(), "observed")
		if err != nil {
			return err
		}
		for text, want := range map[string]bool{"plain-1": true, "old-1": true, "no machine is recorded": true, "\nnode-1 ": false} {
			if strings.Contains(out, text) != want {
				return fmt.Errorf("%q: %t\n%s", text, !want, out)
			}
		}
		t.Logf("\n%s", out)
		return nil
	})
	eventually(t, func() error { // the policies may have come into force after the nodes have joined
		if err := bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll); err != nil {
			return err
		}
		if noted := w.auditAnnotations(t, "validation.policy.admission.k8s.io/validation_failure"); !strings.Contains(fmt.Sprint(noted), "is asked for with evidence") {
			return fmt.Errorf("the audit log says nothing of what would be refused: %q", noted)
		}
		return nil
	})
	if ways := counted(t, r, "nodeattest_ways_around"); ways[`way="AutoApproval"`] != 2 {
		t.Errorf("ways around: %v, want kubeadm's two", ways)
	}
}

// testEnforced adds the component enforce, and takes it out again.
func (w *installation) testEnforced(t *testing.T, bootstrapper client.Client) {
	w.kubectl1(t, "apply", "-k", w.enforced)
	if args := w.deployment(t, controller.DefaultName).Spec.Template.Spec.Containers[0].Args; slices.Contains(args, "--observe") {
		t.Errorf("the Deployment observes: %q", args)
	}
	eventually(t, func() error {
		if err := bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "is asked for with evidence") {
			return fmt.Errorf("a plain request: %v, want it refused", err)
		}
		return nil
	})
	if findings := w.finds(t); slices.ContainsFunc(findings, func(f bypass.Finding) bool { return !f.Guarded }) {
		t.Errorf("enforced, there are %v", findings)
	}
	w.kubectl1(t, "apply", "-k", w.folder)
	eventually(t, func() error { return bootstrapper.Create(t.Context(), requestOf(w.plain1), client.DryRunAll) })
	w.plainNodes(t, bootstrapper)
}

// testUninstall deletes what was applied, with a record of a node in it, and applies it again.
func (w *installation) testUninstall(t *testing.T, bootstrapper client.Client) {
	if out, err := w.operator.plain(t.Context(), "delete", "attestednode", "node-1", "--timeout=10s"); err == nil || !strings.Contains(err.Error(), "kubectl nodeattest release") {
		t.Errorf("a record was deleted in passing: %s, %v", out, err)
	}
	began := time.Now()
	out := w.kubectl1(t, "delete", "-k", w.folder, "--timeout=2m")
	t.Logf("deleted in %s\n%s", time.Since(began).Round(time.Second), out)
	if err := w.admin.List(t.Context(), &v1alpha1.AttestedNodeList{}); err == nil {
		t.Error("the records are still served")
	}
	w.plainNodes(t, bootstrapper) // as if nothing had been there
	eventually(t, func() error {
		_, err := w.operator.plain(t.Context(), "apply", "-k", w.folder)
		return err
	})
	w.deployed(t, "again")
	w.joins(t, bootstrapper, w.node)
}
