package main

import (
	"encoding/json"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/keyring"
)

// cluster is an API server of controller-runtime's fakes, with the reconciler on it, and a
// node with a simulated TPM.
type cluster struct {
	client.Client
	*reconciler
	ring *keyring.Keeper
	node *attesttest.Node
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fakes := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).Build()
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	plane := attesttest.NewControlPlane(t, node)
	config := plane.Config
	config.KeyRing = new(attest.KeyRing)
	verifier, err := attest.NewVerifier(config)
	if err != nil {
		t.Fatal(err)
	}
	secret := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "keys"}}
	if err := fakes.Create(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.New(keyring.Config{Reader: fakes, Writer: fakes, Ring: config.KeyRing, Secret: client.ObjectKeyFromObject(&secret)})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{Client: fakes, node: node, ring: ring, reconciler: &reconciler{Client: fakes, verifier: verifier, ca: plane.CA}}
}

// create files a request as the API server stores it.
func (c *cluster) create(t *testing.T, name string, request *csr.Request) {
	t.Helper()
	text, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var object certificatesv1.CertificateSigningRequest
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	object.Name, object.ResourceVersion = name, ""
	if err := c.Client.Create(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
}

// reconcile looks at a request once, and returns it as it is then.
func (c *cluster) reconcile(t *testing.T, name string) (*certificatesv1.CertificateSigningRequest, error) {
	t.Helper()
	key := client.ObjectKey{Name: name}
	_, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	var object certificatesv1.CertificateSigningRequest
	if err := c.Client.Get(t.Context(), key, &object); err != nil {
		t.Fatal(err)
	}
	return &object, err
}

// challenge is the challenge in a denied hello.
func challenge(t *testing.T, object *certificatesv1.CertificateSigningRequest) []byte {
	t.Helper()
	request, err := view(object)
	if err != nil {
		t.Fatal(err)
	}
	der, err := attest.ChallengeOf(request)
	if err != nil || len(object.Status.Conditions) != 1 {
		t.Fatalf("conditions %+v: %v", object.Status.Conditions, err)
	}
	return der
}

func TestReconcile(t *testing.T) {
	c := newCluster(t)
	hello, err := c.node.Hello(t.Context(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.create(t, "hello", hello)

	// Before the key ring is read, nothing is decided.
	object, err := c.reconcile(t, "hello")
	if err == nil || len(object.Status.Conditions) != 0 {
		t.Fatalf("without keys: %v, conditions %+v", err, object.Status.Conditions)
	}
	if err := c.ring.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if object, err = c.reconcile(t, "hello"); err != nil {
		t.Fatal(err)
	}
	der := challenge(t, object)
	if again, err := c.reconcile(t, "hello"); err != nil || again.ResourceVersion != object.ResourceVersion {
		t.Errorf("a hello that was challenged: %v, version %s after %s", err, again.ResourceVersion, object.ResourceVersion)
	}

	answer, err := c.node.Answer(t.Context(), der, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.create(t, "answer", answer)
	if object, err = c.reconcile(t, "answer"); err != nil {
		t.Fatal(err)
	}
	chain, err := tpmcert.ParseCertificatesPEM(object.Status.Certificate)
	if err != nil || chain[0].Subject.CommonName != "system:node:"+attesttest.NodeName {
		t.Errorf("certificate: %v", err)
	}
	if len(object.Status.Conditions) != 1 || object.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
		t.Errorf("conditions %+v, want one, Approved", object.Status.Conditions)
	}

	// The same evidence, filed by another user.
	answer.User.Username = csr.BootstrapUserPrefix + "zyxwvu"
	c.create(t, "stolen", answer)
	if object, err = c.reconcile(t, "stolen"); err != nil {
		t.Fatal(err)
	}
	if len(object.Status.Conditions) != 1 || object.Status.Conditions[0].Type != certificatesv1.CertificateDenied || len(object.Status.Certificate) != 0 {
		t.Errorf("conditions %+v, want one, Denied", object.Status.Conditions)
	}
	if _, err := c.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "absent"}}); err != nil {
		t.Errorf("a request that is gone: %v", err)
	}
}
