package kube

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// applyWall makes the shipped admission policies on approvals and certificates, and waits until
// they are enforced.
func (c *cluster) applyWall(t *testing.T) {
	t.Helper()
	c.apply(t, "approval.yaml")
	c.apply(t, "enforce/approval.yaml")
	object := file(t, c.admin, c.plainFor(t, "probe", csr.SignerClientTPM))
	for subresource, change := range map[string]func(){
		"approval": func() { object.Status.Conditions = condition(certificatesv1.CertificateApproved) },
		"status": func() {
			object.Status.Conditions, object.Status.Certificate = nil, controlplane.CertificatePEM(c.ca.Cert)
		},
	} {
		change()
		eventually(t, func() error {
			if err := c.admin.SubResource(subresource).Update(t.Context(), object, client.DryRunAll); !apierrors.IsForbidden(err) {
				return fmt.Errorf("the policy on %s is not in force: %v", subresource, err)
			}
			return nil
		})
	}
}

func condition(kind certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	return []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue, Reason: "ByHand", Message: "by a test"}}
}

// plainFor is a request for a node without evidence.
func (c *cluster) plainFor(t *testing.T, nodeName, signer string) *csr.Spec {
	t.Helper()
	purpose := csr.PurposeClient
	request, err := csr.Create(purpose, controlplane.NewKey(t), nodeName, csr.CreateOptions{})
	if signer == csr.SignerKubeletServing { // for what csr.Create refuses
		purpose = csr.PurposeServing
		request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: csr.NodeUserPrefix + nodeName, Organization: []string{csr.NodesGroup}},
			DNSNames: []string{"kubernetes.default.svc"}}, controlplane.NewKey(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	spec, err := (&csr.Bundle{Request: request}).Spec(csr.SignerKubeAPIServerClientKubelet, 3600)
	if err != nil {
		t.Fatal(err)
	}
	spec.SignerName, spec.Usages = signer, purpose.Usages(false)
	return spec
}

// grants gives a subject a ClusterRole of its own.
func (c *cluster) grants(t *testing.T, name string, rules []rbacv1.PolicyRule, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	t.Helper()
	if err := c.admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}); err != nil {
		t.Fatal(err)
	}
	return c.binds(t, name, name, subject)
}

func (c *cluster) binds(t *testing.T, name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	if err := c.admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	return binding
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// autoApproval is what kubeadm binds, and binds again at every upgrade.
func (c *cluster) autoApproval(t *testing.T) {
	t.Helper()
	const role = "system:certificates.k8s.io:certificatesigningrequests:"
	c.binds(t, "kubeadm:node-autoapprove-bootstrap", role+"nodeclient", group(csr.BootstrappersGroup))
	c.binds(t, "kubeadm:node-autoapprove-certificate-rotation", role+"selfnodeclient", group(csr.NodesGroup))
}

// signers gives a verb on signers, with the other rights that it needs.
func signers(verb string, names ...string) []rbacv1.PolicyRule {
	subresources := []string{"certificatesigningrequests/approval", "certificatesigningrequests/status"}
	return []rbacv1.PolicyRule{
		{Verbs: []string{"create", "get", "list"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}},
		{Verbs: []string{"update"}, APIGroups: []string{"certificates.k8s.io"}, Resources: subresources},
		{Verbs: []string{verb}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: names},
	}
}

// withLabel puts the label of evidence behind a request, as a line of text.
func withLabel(spec *csr.Spec) *csr.Spec {
	labelled := *spec
	labelled.Request = append(slices.Clone(spec.Request), []byte(csr.BlockData+"\n")...)
	return &labelled
}

// racersOf is how many plain requests compete with kubeadm's automatic approval.
func racersOf() int {
	if os.Getenv(longVar) != "" {
		return 100
	}
	return 10
}

// TestApprovals has everybody approve and sign requests of nodes who has the right to in RBAC:
// with the shipped policies only the controller and Kubernetes' signer can.
func TestApprovals(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.prepare(t)
	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	early := file(t, bootstrapper, c.plainFor(t, "node-1", "kubernetes.io/kube-apiserver-client")) // which the policy on requests refuses
	c.applyAdmission(t)
	const approver = "system:serviceaccount:default:approver"
	all := []string{csr.SignerKubeAPIServerClientKubelet, csr.SignerKubeletServing, csr.SignerClientTPM, csr.SignerChallengeTPM}
	c.grants(t, "approver", signers("approve", all...), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: approver})
	c.grants(t, "second-signer", signers("sign", all...), rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "second-signer"})
	c.autoApproval(t)
	c.startSigner(t)
	racers := racersOf()
	race := func() (signed int) {
		var filed []*certificatesv1.CertificateSigningRequest
		for i := range racers {
			filed = append(filed, file(t, bootstrapper, withLabel(c.plainFor(t, fmt.Sprintf("evil-%d", i), csr.SignerKubeAPIServerClientKubelet))))
		}
		// The approver of kube-controller-manager takes later requests after the present ones: when
		// it has looked at the last one, it has looked at all.
		for _, object := range filed {
			eventually(t, func() error {
				if n := c.looked(t, object.Name); n == 0 {
					return errNotYet
				}
				return nil
			})
			if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Fatal(err)
			}
			if len(object.Status.Conditions) != 0 {
				signed++
			}
		}
		return signed
	}
	if signed := race(); signed != racers {
		t.Errorf("without the policies %d of %d plain requests were approved, want all: the test shows nothing", signed, racers)
	}
	c.applyWall(t)
	if signed := race(); signed != 0 {
		t.Errorf("%d of %d plain requests were approved by kubeadm's automatic approval", signed, racers)
	}

	early.Status.Conditions = condition(certificatesv1.CertificateApproved)
	if err := c.admin.SubResource("approval").Update(t.Context(), early); !apierrors.IsForbidden(err) {
		t.Errorf("a bootstrap token's request at the signer of API clients: %v, want it refused", err)
	}
	as := func(user string, groups ...string) client.Client { return c.client(t, c.user(t, user, groups...)) }
	ours, others := as(controllerUser), as(approver)
	t.Run("approvers", func(t *testing.T) { c.testApprovers(t, ours, others) })
	t.Run("signers", func(t *testing.T) { c.testSigners(t, ours, as("second-signer")) })
	t.Run("serving certificates", func(t *testing.T) { c.testServingApprovals(t, ours, others) })
	t.Run("the controller's Secrets", func(t *testing.T) {
		token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "node-attestation-signer"}},
			Type: corev1.SecretTypeServiceAccountToken}
		if err := ours.Create(t.Context(), token); !apierrors.IsForbidden(err) {
			t.Errorf("a token of the signer: %v, want it refused", err)
		}
	})
	t.Run("break the glass", func(t *testing.T) { c.testBreakGlass(t) })
	t.Run("requests that stay", func(t *testing.T) { c.testBurdens(t, bootstrapper) })
}

// looked counts in the audit log how often kube-controller-manager has tried to approve a request.
func (c *cluster) looked(t *testing.T, name string) (n int) {
	t.Helper()
	for _, a := range c.audit(t) {
		if a.Verb == "update" && a.ObjectRef.Subresource == "approval" && a.ObjectRef.Name == name {
			n++
		}
	}
	return n
}

// testApprovers has others approve and deny, and then the controller.
func (c *cluster) testApprovers(t *testing.T, ours, others client.Client) {
	object := file(t, c.admin, c.plainFor(t, "node-1", csr.SignerKubeAPIServerClientKubelet))
	denied := object.DeepCopy()
	object.Status.Conditions = condition(certificatesv1.CertificateApproved)
	for name, who := range map[string]client.Client{"an administrator": c.admin, "another approver": others} {
		err := who.SubResource("approval").Update(t.Context(), object.DeepCopy())
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "are approved by the node-attestation-controller, not by ") {
			t.Errorf("%s approves: %v, want it refused", name, err)
		}
	}
	forNodes := file(t, c.client(t, c.bearer(t, otherTokenID)), c.plainFor(t, "node-1", csr.SignerClientTPM))
	forNodes.Status.Conditions = condition(certificatesv1.CertificateApproved)
	if err := others.SubResource("approval").Update(t.Context(), forNodes); !apierrors.IsForbidden(err) {
		t.Errorf("another approver, at our signer: %v, want it refused", err)
	}
	if err := ours.SubResource("approval").Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if decided(t, c.admin, object); len(object.Status.Certificate) == 0 {
		t.Errorf("the controller's approval gives no certificate: %+v", object.Status)
	}
	object = file(t, c.admin, c.plainFor(t, "node-1", denied.Spec.SignerName))
	object.Status.Conditions = condition(certificatesv1.CertificateDenied)
	if err := others.SubResource("approval").Update(t.Context(), object); err != nil {
		t.Errorf("others may deny: %v", err)
	}
	free := file(t, c.admin, c.plainFor(t, "alice", "example.com/signer"))
	free.Status.Conditions = condition(certificatesv1.CertificateApproved)
	if err := c.admin.SubResource("approval").Update(t.Context(), free); err != nil {
		t.Errorf("an administrator, at a foreign signer: %v", err)
	}
}

// testSigners has other accounts write a certificate into an approved request.
func (c *cluster) testSigners(t *testing.T, ours, second client.Client) {
	for name, signer := range map[string]string{"Kubernetes'": csr.SignerKubeAPIServerClientKubelet, "ours": csr.SignerClientTPM} {
		object := file(t, c.admin, c.plainFor(t, "node-1", signer))
		object.Status.Certificate = controlplane.CertificatePEM(c.ca.Cert)
		for who, as := range map[string]client.Client{"a second signer": second, "an administrator": c.admin, "the controller": ours} {
			if err := as.SubResource("status").Update(t.Context(), object.DeepCopy()); !apierrors.IsForbidden(err) {
				t.Errorf("%s writes a certificate of %s signer: %v, want it refused", who, name, err)
			}
		}
	}
}

// testServingApprovals has the controller's token and another approver approve a request for
// the names of the API server, without the component serving and with it.
func (c *cluster) testServingApprovals(t *testing.T, ours, others client.Client) {
	node := c.client(t, c.user(t, csr.NodeUserPrefix+"node-1", csr.NodesGroup))
	approves := func(as client.Client) error {
		object := file(t, node, c.plainFor(t, "node-1", csr.SignerKubeletServing))
		object.Status.Conditions = condition(certificatesv1.CertificateApproved)
		return as.SubResource("approval").Update(t.Context(), object)
	}
	if err := approves(ours); !apierrors.IsForbidden(err) {
		t.Errorf("the controller's token approves a certificate for kubernetes.default.svc: %v, want it refused", err)
	}
	if err := approves(others); err != nil {
		t.Errorf("who decides about serving certificates where the controller does not: %v", err)
	}
	c.apply(t, "serving/rbac.yaml")
	eventually(t, func() error { return approves(ours) })
	eventually(t, func() error {
		if err := approves(others); !apierrors.IsForbidden(err) {
			return fmt.Errorf("another approver, with the component serving: %v,  want it refused", err)
		}
		return nil
	})
}

// testBreakGlass approves as a member of the group without members, while the controller runs: with a
// reason alone, which is in the audit log.
func (c *cluster) testBreakGlass(t *testing.T) {
	as := c.user(t, "admin", "system:masters")
	as.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:masters", "nodeattest:break-glass"}}
	alice := c.client(t, as)
	object := file(t, c.admin, c.plainFor(t, "node-1", csr.SignerKubeAPIServerClientKubelet))
	approve := func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			t.Fatal(err)
		}
		object.Status.Conditions = condition(certificatesv1.CertificateApproved)
		return alice.SubResource("approval").Update(t.Context(), object)
	}
	if err := approve(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "says why") {
		t.Errorf("without a reason: %v, want it refused", err)
	}
	controlplane.Write(t, c.dir, "ek-roots.pem", controlplane.CertificatePEM(c.ca.Cert))
	controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines: []\n"))
	r := c.startController(t, buildProgram(t, "node-attestation-controller"), "controller", func(map[string]any) {})
	r.isReady(t)
	if decided(t, c.admin, object); object.Status.Conditions[0].Type != certificatesv1.CertificateDenied {
		t.Errorf("the controller leaves a request without a reason: %+v", object.Status)
	}
	object = requestOf(c.plainFor(t, "node-1", csr.SignerKubeAPIServerClientKubelet))
	object.Annotations = map[string]string{"nodeattest.github.io/break-glass": "the TPM is broken"}
	if err := c.admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if !strings.Contains(r.text(t), "not denied: break-glass annotation present") {
			return errNotYet
		}
		return nil
	})
	if err := approve(); err != nil {
		t.Fatal(err)
	}
	if decided(t, c.admin, object); len(object.Status.Certificate) == 0 {
		t.Errorf("no certificate: %+v", object.Status)
	}
	eventually(t, func() error {
		if !slices.Contains(c.auditAnnotations(t, "node-attestation-approval/break-glass"), "alice: the TPM is broken") {
			return fmt.Errorf("the audit log says nothing of it: %q", c.auditAnnotations(t, "node-attestation-approval/break-glass"))
		}
		return nil
	})
	for _, value := range c.auditAnnotations(t, "node-attestation-approval/break-glass") {
		if !strings.HasPrefix(value, "alice:") {
			t.Errorf("others are said to have broken the glass: %q", value)
		}
	}
}

// auditAnnotations are the values of an annotation in the audit log.
func (c *cluster) auditAnnotations(t *testing.T, key string) (values []string) {
	t.Helper()
	text := controlplane.Read(t, c.auditLog)
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) {
		var entry struct {
			Annotations map[string]string `json:"annotations"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if value, ok := entry.Annotations[key]; ok {
			values = append(values, value)
		}
	}
	return values
}

// testBurdens files what would stay, or is large although the request is small.
func (c *cluster) testBurdens(t *testing.T, bootstrapper client.Client) {
	many := func(n int, value string) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("k-%d", i)] = value
		}
		return m
	}
	for name, row := range map[string]struct {
		change func(o *metav1.ObjectMeta)
		want   string // "": it is allowed
	}{
		"a finalizer": {func(o *metav1.ObjectMeta) { o.Finalizers = []string{"example.com/f"} }, "no finalizers"},
		"an owner": {func(o *metav1.ObjectMeta) {
			o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "u"}}
		}, "no owners"},
		"16 labels":         {func(o *metav1.ObjectMeta) { o.Labels = many(16, "v") }, ""},
		"17 labels":         {func(o *metav1.ObjectMeta) { o.Labels = many(17, "v") }, "over 16"},
		"20,000 labels":     {func(o *metav1.ObjectMeta) { o.Labels = many(20000, "v") }, "over 16"},
		"annotations":       {func(o *metav1.ObjectMeta) { o.Annotations = many(16, strings.Repeat("v", 1024)) }, ""},
		"17 annotations":    {func(o *metav1.ObjectMeta) { o.Annotations = many(17, "v") }, "over 16"},
		"a long annotation": {func(o *metav1.ObjectMeta) { o.Annotations = many(1, strings.Repeat("v", 1025)) }, "over 1,024"},
		"the reason of operator": {func(o *metav1.ObjectMeta) {
			o.Annotations = map[string]string{"nodeattest.github.io/break-glass": "because"}
		}, "for operators"},
	} {
		t.Run(name, func(t *testing.T) {
			object := requestOf(c.plainFor(t, "node-1", csr.SignerClientTPM))
			row.change(&object.ObjectMeta)
			err := bootstrapper.Create(t.Context(), object, client.DryRunAll)
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want a refusal with %q", err, row.want)
			}
		})
	}
}
