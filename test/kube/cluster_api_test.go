package kube

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func base64Text(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func atoi(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// homeAccount makes the controller's account on the management cluster, and returns its kubeconfig.
func (f *fleet) homeAccount(t *testing.T) string {
	t.Helper()
	ns, name := metav1.NamespaceDefault, controller.DefaultName
	meta := metav1.ObjectMeta{Namespace: ns, Name: name}
	read := []string{"get", "list", "watch"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fleetCluster + "-challenge-keys"}},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{coreGroup}, Resources: []string{"machines", "clusters"}, Verbs: read},
			{APIGroups: []string{bootstrapGroup}, Resources: []string{"kubeadmconfigs"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{fleetCluster + "-challenge-keys"}, Verbs: []string{"get", "update"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{name + "-" + fleetCluster}, Verbs: []string{"get", "update"}},
		}},
		&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: name}}},
	} {
		if err := f.home.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return f.home.writeKubeconfig(t, "home.kubeconfig", &clientcmdapi.AuthInfo{Token: f.home.serviceAccountToken(t, ns, name)})
}

// byMachines has the controller decide by the fleet's Machines.
func (f *fleet) byMachines(t *testing.T) *replica {
	t.Helper()
	home := f.homeAccount(t)
	r := f.startController(t, buildProgram(t, "node-attestation-controller"), "controller", func(config map[string]any) {
		config["inventory"] = fields{"clusterAPI": fields{"kubeconfig": home, "namespace": metav1.NamespaceDefault, "cluster": fleetCluster}}
		of := config["cluster"].(fields)
		delete(of, "namespace")
		delete(of, "keyRingSecret")
		config["membership"] = fields{"mode": "FirstUse", "road": "ek", "identityClass": "RSA-2048"}
	})
	r.isReady(t)
	return r
}

// nodeBy is a node on a TPM that joins by a token.
func (f *fleet) nodeBy(t *testing.T, name, token, providerID string, device *tpmsim.TPM) *nodeMachine {
	t.Helper()
	m := f.install(t, buildProgram(t, "kubelet-authenticator"), name, device, func(config map[string]any) {
		if providerID != "" {
			config["providerID"] = providerID
		}
	})
	m.token = m.kubeconfig(t, "bootstrap", &clientcmdapi.AuthInfo{Token: token})
	return m
}

// TestMachineDeployment has Machines of a MachineDeployment join by their tokens.
func TestMachineDeployment(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "v1beta2", 3)
	all := f.machines(t, 3)
	for i := range all {
		f.provision(t, &all[i])
	}
	ca := newCA(t, "")
	device := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	f.writeRoots(t, f.nodeOn(t, device, "node-1"))
	r := f.byMachines(t)
	_ = r
	m := f.nodeBy(t, "node-1", all[0].token, all[0].providerID, device)
	_, pair := m.credential(t)
	t.Logf("%s", pair.Leaf.Subject)
	var record v1alpha1.AttestedNode
	if err := f.admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &record); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", record.Spec)
}

var (
	_ = fmt.Sprint
	_ = strings.Cut
	_ certificatesv1.CertificateSigningRequest
	_ = attesttest.TokenID
	_ = csr.SignerClientTPM
	_ = controlplane.Patience
	_ unstructured.Unstructured
)
