package kubectl

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/kube/program/controlplane"
)

// operated is the plugin of an operator of a cluster that has some objects.
type operated struct {
	*plugin
	out, err bytes.Buffer
	requests *certificatesv1.CertificateSigningRequestList
}

// operates makes it, with an inventory where that is not empty. The time is that of the fixtures.
func operates(t *testing.T, inventory string, objects ...client.Object) *operated {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if inventory != "" {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: defaultNamespace, Name: configMap},
			Data: map[string]string{configKey: strangeConfig, "inventory.yaml": inventory}})
	}
	list := new(certificatesv1.CertificateSigningRequestList)
	for _, o := range objects {
		if r, ok := o.(*certificatesv1.CertificateSigningRequest); ok {
			list.Items = append(list.Items, *r)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	o := &operated{requests: list}
	var err error
	if o.plugin, err = newPlugin(streams{new(bytes.Buffer), &o.out, &o.err}, []controlplane.Plugin{strange()}); err != nil {
		t.Fatal(err)
	}
	o.now = func() time.Time { return time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC) }
	o.namespace, o.dryRun = defaultNamespace, "none"
	o.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(new(corev1.Event), "involvedObject.uid", func(o client.Object) []string { return []string{string(o.(*corev1.Event).InvolvedObject.UID)} }).Build()
	if o.api, err = requests.Client(&rest.Config{Host: server.URL}, server.Client(), scheme); err != nil {
		t.Fatal(err)
	}
	return o
}

const strangeConfig = "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: NodeAttestation\ncluster: {ids: [vectors]}\ninventory: {file: /etc/inventory.yaml}\n" +
	"strange: {}\ntpm: {allowedEKs: []}\nmembership: {mode: Approval, kind: strange}\n"

// refusedHello is a request of a machine of the kind strange to be a node, which was refused since no
// record admits it.
func refusedHello(t *testing.T, name, nodeName, machine string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return helloOf(t, name, nodeName, machine, "")
}

// stating is a request of a user for node-1 that states a provider ID.
func stating(t *testing.T, name, user, providerID string, created time.Time) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	o := helloOf(t, name, "node-1", honest, providerID)
	o.Spec.Username, o.CreationTimestamp = user, metav1.NewTime(created)
	return o
}

func helloOf(t *testing.T, name, nodeName, machine, providerID string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{ProviderID: providerID})
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&csr.Bundle{Request: request, Provider: "strange/v1", Data: strangeHello(t, "cluster.x-k8s.io/kube-apiserver-client-kubelet-strange", attest.Identity(machine))}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-of-request"}}
	o.Spec.Request, o.Spec.SignerName, o.Spec.Username = text, "cluster.x-k8s.io/kubelet-attestation-challenge-strange", "system:bootstrap:abcdef"
	o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "NotAMember"}}
	return o
}

// fixture is a request of the core's worked example, which was refused since no record admits its machine.
func fixture(t *testing.T, file string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	o := new(certificatesv1.CertificateSigningRequest)
	if err := json.Unmarshal(fixtures(t)[file], o); err != nil {
		t.Fatal(err)
	}
	o.Name, o.Status.Conditions = "a", refusedHello(t, "a", "node-1", honest).Status.Conditions
	return o
}

func notDecided(o *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	o.Status.Conditions = nil
	return o
}

// many are refused requests of other machines to be a node.
func many(t *testing.T, nodeName string) (all []client.Object) {
	t.Helper()
	for i := range 9 {
		all = append(all, refusedHello(t, fmt.Sprintf("r%d", i), nodeName, fmt.Sprintf("strange:1%d", i)))
	}
	return all
}
