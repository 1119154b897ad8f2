package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// staticRelease is the first release of Kubernetes that reads admission policies from its disk by default.
const staticRelease = "v1.37.2"

// A manifestWall is a cluster whose API server has the admission policies on its disk, as
// docs/static-policies.md has it.
type manifestWall struct {
	*cluster
	page  *page
	shell *shell
	dir   string // where the page's commands run
	disk  string // the page's /etc/kubernetes/admission
	// bootstrapper files requests with a bootstrap token, controller is the controller's account.
	bootstrapper, controller client.Client
	plain                    *csr.Spec // a request without evidence
	request                  *certificatesv1.CertificateSigningRequest
}

// TestManifestWall goes through docs/static-policies.md: the admission policies are on the disk of a
// kube-apiserver. A cluster's administrator, who may do everything that requests can, tries to take them away, and
// after each attempt they still refuse.
func TestManifestWall(t *testing.T) {
	t.Parallel()
	bin := controlplane.BinariesOf(t, staticRelease)
	w := &manifestWall{page: readPage(t, "static-policies.md", "sh", "yaml", "text"), dir: t.TempDir(), disk: t.TempDir()}
	w.shell = startShell(t, w.dir, "KUBECONFIG="+filepath.Join(w.dir, "kubeconfig"),
		"PATH="+strings.Join([]string{filepath.Dir(buildProgram(t, "kubectl-nodeattest")), bin, os.Getenv("PATH")}, ":"))
	w.renders(t, "")
	w.shell.run(t, "mkdir "+w.disk+"/policies && mv policies.yaml "+w.disk+"/policies/")
	config := strings.ReplaceAll(w.page.take(t, "2. Give them to each API server", "yaml"), "/etc/kubernetes/admission", w.disk)
	controlplane.Write(t, w.disk, "admission.yaml", []byte(config))
	controlplane.Write(t, w.dir, "kubeadm.yaml", []byte(w.page.take(t, "With kubeadm", "yaml")))
	w.shell.run(t, "kubeadm config validate --config kubeadm.yaml")
	w.cluster = startClusterFrom(t, bin, func(*cluster) []string {
		return []string{"--admission-control-config-file=" + filepath.Join(w.disk, "admission.yaml")}
	})
	controlplane.Write(t, w.dir, "kubeconfig", controlplane.Read(t, w.kubeconfig(t, "admin.kubeconfig", "admin", "system:masters")))
	w.plain = w.plainFor(t, "node-1", csr.SignerKubeAPIServerClientKubelet)
	w.request = file(t, w.admin, w.plain)
	if err := w.refused("node-attestation-approval"); err != nil { // no object has been read or made
		t.Error(err)
	}

	w.ready(t)
	w.inForce(t, "the beginning")
	t.Run("look", w.testLook)
	t.Run("requests", w.testRequests)
	t.Run("the disk", w.testDisk)
}

// renders runs the page's first command, on a kustomization with a patch.
func (w *manifestWall) renders(t *testing.T, patch string) {
	t.Helper()
	shipped, err := filepath.Abs(filepath.Join(root, "kube", "deploy"))
	if err == nil {
		shipped, err = filepath.Rel(filepath.Join(w.dir, "my-cluster"), shipped)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Join(w.dir, "my-cluster"), 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	controlplane.Write(t, filepath.Join(w.dir, "my-cluster"), "kustomization.yaml",
		[]byte("resources: ["+shipped+"]\ncomponents: ["+shipped+"/enforce]\n"+patch))
	w.shell.run(t, "set -o pipefail\n"+w.page.take(t, "1. Make the files", "sh"))
}

// ready applies kube/deploy, and makes the users and the record of the attempts.
func (w *manifestWall) ready(t *testing.T) {
	t.Helper()
	w.namespaces(t)
	w.makeToken(t, attesttest.TokenID)
	w.bootstrapper = w.client(t, w.bearer(t, attesttest.TokenID))
	w.controller = w.client(t, w.user(t, controllerUser))
	w.shell.run(t, "kubectl apply -k my-cluster")
	record := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec: v1alpha1.AttestedNodeSpec{Scope: "ek RSA-2048", Machine: "test:1", State: v1alpha1.NodeReserved, Deadline: in(patience)}}
	eventually(t, func() error { return w.admin.Create(t.Context(), record.DeepCopy()) })
}

// staticPolicies are the policies on the disk.
var staticPolicies = []string{"node-attestation", "node-attestation-approval", "node-attestation-metadata", "node-attestation-records", "node-attestation-signing"}

// tries makes a request that the policy of a name refuses.
func (w *manifestWall) tries(policy string) error {
	object, ctx := w.request.DeepCopy(), context.Background()
	switch policy {
	case "node-attestation":
		return w.bootstrapper.Create(ctx, requestOf(w.plain), client.DryRunAll)
	case "node-attestation-approval":
		object.Status.Conditions = condition(certificatesv1.CertificateApproved)
		return w.admin.SubResource("approval").Update(ctx, object, client.DryRunAll)
	case "node-attestation-metadata":
		object.Annotations = map[string]string{"nodeattest.github.io/break-glass": "a thief of the token"}
		object.Status.Conditions = condition(certificatesv1.CertificateDenied)
		return w.controller.SubResource("approval").Update(ctx, object, client.DryRunAll)
	case "node-attestation-records":
		return w.admin.Delete(ctx, &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, client.DryRunAll)
	default:
		object.Status.Certificate = controlplane.CertificatePEM(w.ca.Cert)
		return w.admin.SubResource("status").Update(ctx, object, client.DryRunAll)
	}
}

// refused is an error unless a policy on the disk refuses its request.
func (w *manifestWall) refused(policy string) error {
	err := w.tries(policy)
	if want := "ValidatingAdmissionPolicy '" + policy + ".static.k8s.io'"; !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
		return fmt.Errorf("%s: %w, want it refused by %s", policy, err, want)
	}
	return nil
}

// inForce checks that each policy on the disk refuses, and allows a request with evidence.
func (w *manifestWall) inForce(t *testing.T, after string) {
	t.Helper()
	for _, policy := range staticPolicies {
		if err := w.refused(policy); err != nil {
			t.Errorf("after %s: %v", after, err)
		}
	}
	if err := w.bootstrapper.Create(t.Context(), w.asks("kubelet-attestation-challenge-rack"), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "is not in the ConfigMap") {
		t.Errorf("after %s: a request to a signer that is not served: %v, want it refused", after, err)
	}
	eventually(t, func() error { // as soon as the API server has seen that its own policy is gone
		if err := w.bootstrapper.Create(t.Context(), w.asks("kubelet-attestation-challenge-tpm"), client.DryRunAll); err != nil {
			return fmt.Errorf("after %s: a request to a signer of node attestation: %w", after, err)
		}
		return nil
	})
}

// asks is a request to a signer of node attestation.
func (w *manifestWall) asks(signer string) *certificatesv1.CertificateSigningRequest {
	object := requestOf(withLabel(w.plain))
	object.Spec.SignerName = "cluster.x-k8s.io/" + signer
	return object
}

// testRequests has an administrator try to take the policies away.
func (w *manifestWall) testRequests(t *testing.T) {
	const reserved, weaker = "are reserved for static manifest-based configurations", "sed 's/- Deny/- Audit/' " // one document's
	files := w.disk + "/policies/policies.yaml"
	of := func(kind string) string {
		return "validatingadmissionpolic" + kind + " node-attestation-approval.static.k8s.io"
	}
	for _, attempt := range []struct{ command, want string }{
		{"kubectl delete " + of("y"), "NotFound"},
		{"kubectl delete " + of("ybinding"), "NotFound"},
		{"kubectl patch " + of("y") + ` --type merge -p '{"spec":{"failurePolicy":"Ignore"}}'`, "NotFound"},
		{"kubectl patch " + of("ybinding") + ` --type merge -p '{"spec":{"validationActions":["Audit"]}}'`, "NotFound"},
		{"kubectl create -f " + files, reserved},
		{weaker + files + " | kubectl apply -f -", reserved},
		{weaker + files + " | kubectl apply --server-side --force-conflicts -f -", reserved},
		// The API takes a binding of another name, which binds no policy of the disk.
		{"kubectl create -f - <<<'" + otherBinding + "'", ""},
		{"echo '{}' | kubectl replace --raw /configz -f -", "Error"},
		{`kubectl -n nodeattest-system patch configmap node-attestation-signers --type merge -p '{"data":{"rack":"cluster.x-k8s.io/kubelet-attestation-challenge-rack"}}'`, ""},
		{"kubectl delete validatingadmissionpolicybindings --all", ""},
		{"kubectl delete validatingadmissionpolicies --all", ""},
		{"kubectl -n nodeattest-system delete configmap node-attestation-signers", ""},
	} {
		out, err := w.shell.try(t, attempt.command)
		if (err != nil) != (attempt.want != "") || !strings.Contains(out, attempt.want) {
			t.Errorf("%s: %v\n%s\nwant %q", attempt.command, err, out, attempt.want)
		}
		w.inForce(t, attempt.command)
	}
	as := w.user(t, "admin", "system:masters")
	as.Impersonate = rest.ImpersonationConfig{UserName: controllerUser}
	object := w.request.DeepCopy()
	object.Status.Conditions = condition(certificatesv1.CertificateApproved)
	if err := w.client(t, as).SubResource("approval").Update(t.Context(), object, client.DryRunAll); err != nil {
		t.Errorf("an administrator who passes for the controller is refused, and the page says otherwise: %v", err)
	}
}

// otherBinding has a policy of the disk audit, by an object of the API.
const otherBinding = `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "other"},
"spec": {"policyName": "node-attestation-approval.static.k8s.io", "validationActions": ["Audit"]}}`

// testLook runs the page's command that looks.
func (w *manifestWall) testLook(t *testing.T) {
	controlplane.Write(t, w.dir, "node.csr", w.plain.Request)
	out, err := w.shell.try(t, w.page.take(t, "3. Look", "sh"))
	if want := strings.TrimSpace(w.page.take(t, "3. Look", "text")); err == nil || !strings.Contains(out, want) {
		t.Errorf("%v: %s\nwant %s", err, out, want)
	}
	w.shell.run(t, `kubectl get --raw /metrics | grep '^apiserver_manifest_admission_config_controller_last_config_info{.*hash="sha256:'`)
}

// testDisk changes the files: one that is broken changes nothing and starts no API server, a good one
// comes into force, and without files there are no policies.
func (w *manifestWall) testDisk(t *testing.T) {
	broken := controlplane.Write(t, w.disk+"/policies", "broken.yaml", []byte("kind: Broken\n"))
	eventually(t, func() error {
		_, err := w.shell.try(t, `kubectl get --raw /metrics | grep '^apiserver_manifest_admission_config_controller_automatic_reloads_total{.*status="failure"'`)
		return err
	})
	w.inForce(t, "a broken file")
	w.server.stop(t)
	if err := w.server.launch(); err != nil {
		t.Fatal(err)
	}
	<-w.server.done
	if text := string(w.server.tail()); w.server.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(text, "broken.yaml") {
		t.Errorf("an API server whose files are broken ends with status %d:\n%s", w.server.cmd.ProcessState.ExitCode(), text)
	}
	if err := errors.Join(os.Remove(broken), w.server.launch()); err != nil {
		t.Fatal(err)
	}
	w.server.ready(t, func() error { return w.refused("node-attestation-records") })
	eventually(t, func() error { return w.refused("node-attestation-metadata") }) // by then RBAC has been read
	w.inForce(t, "a restart")

	w.renders(t, `patches:
  - patch: |
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: node-attestation-signers, namespace: nodeattest-system}
      data: {rack: cluster.x-k8s.io/kubelet-attestation-challenge-rack}
`)
	w.shell.run(t, "mv policies.yaml "+w.disk+"/policies/")
	eventually(t, func() error {
		return w.bootstrapper.Create(t.Context(), w.asks("kubelet-attestation-challenge-rack"), client.DryRunAll)
	})
	w.shell.run(t, "rm "+w.disk+"/policies/*")
	eventually(t, func() error { return w.tries("node-attestation-approval") })
}
