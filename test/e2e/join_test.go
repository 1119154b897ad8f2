package e2e

import (
	"crypto/x509"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
)

// TestJoin is the whole join through a real kube-apiserver, once on each road, and the
// attacks of a stranger with the same bootstrap token.
func TestJoin(t *testing.T) {
	c := newCluster(t)
	clusterID, err := attest.ClusterID(c.ca.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, road := range []struct {
		name    string
		options attesttest.NodeOptions
	}{
		{"AK certificate", attesttest.NodeOptions{Road: attest.RoadAK}},
		{"EK certificate", attesttest.NodeOptions{Road: attest.RoadEK, TPMKey: tpmkey.ECDSAP256}},
	} {
		t.Run(road.name, func(t *testing.T) {
			road.options.ClusterID = clusterID
			road.options.ExpirationSeconds = 3600
			n := attesttest.NewNode(t, road.options)
			j := &join{t: t, node: n, plane: newPlane(t, c, n, clusterID),
				bootstrapper: c.client(t, c.bootstrapper(attesttest.TokenID)), controller: c.client(t, c.controller(t))}
			j.run(c)
		})
	}
}

// plane is the control plane's side: the verifier, and the cluster's CA as signer.
type plane struct {
	verifier *attest.Verifier
	ca       *csr.CA
}

func newPlane(t *testing.T, c *cluster, n *attesttest.Node, clusterID string) *plane {
	t.Helper()
	config := attesttest.NewControlPlane(t, n).Config
	config.Policy = config.Policy.Clone()
	config.Policy.ClusterIDs = []string{clusterID}
	verifier, err := attest.NewVerifier(config)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := csr.NewCA([]*x509.Certificate{c.ca.Cert}, c.ca.Key, csr.CAConfig{ClusterIDs: []string{clusterID}, SignerNames: []string{csr.SignerClientTPM}})
	if err != nil {
		t.Fatal(err)
	}
	return &plane{verifier, ca}
}

// join is the join of one node. The two sides reach each other only through its two
// clients.
type join struct {
	t                        *testing.T
	node                     *attesttest.Node
	plane                    *plane
	bootstrapper, controller kubernetes.Interface
}

func (j *join) run(c *cluster) {
	t := j.t
	hello, err := j.node.Attester.Hello(t.Context(), j.node.Subject)
	if err != nil {
		t.Fatal(err)
	}
	name := j.file(hello)
	t.Logf("the node filed the hello %s", name)
	j.cannotMeddle(name)

	filed := j.stored(name)
	challenge, err := j.plane.verifier.Challenge(t.Context(), filed)
	if err != nil {
		t.Fatal(err)
	}
	j.decide(filed, attest.ChallengeDecision(challenge, err))
	j.cannotMeddle(name)
	j.cannotSignHello(name)

	got := j.challenge(name)
	if diff := cmp.Diff(challenge, got); diff != "" {
		t.Fatalf("the challenge that the node read is another (-sent +read):\n%s", diff)
	}
	t.Logf("the node read the challenge, %d bytes, in the Denied condition", len(got))
	answer, err := j.node.Attester.Answer(t.Context(), got, j.node.Certified, j.node.Subject)
	if err != nil {
		t.Fatal(err)
	}
	answered := j.file(answer)
	t.Logf("the node filed the answer %s, %d bytes", answered, len(j.get(answered).Spec.Request))
	j.cannotMeddle(answered)
	j.refusesOthers(c, answer)

	request := j.stored(answered)
	result, err := j.plane.verifier.Verify(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	j.conflictsWithOthers(request, result.Attested().Decision())
	j.decide(request, result.Attested().Decision())
	issued, err := j.plane.ca.Issue(t.Context(), result.Attested())
	if err != nil {
		t.Fatal(err)
	}
	j.publish(answered, issued.PEM)
	j.isFinished(answered)
	j.cannotMeddle(answered)
	j.authenticates(c, j.get(answered).Status.Certificate)
}

// lies are annotations that a requester can set when it files a request. The server
// keeps them, and nothing reads them.
var lies = map[string]string{
	"cluster-x-k8s-io/tpm-endorsement-key":                        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
	"cluster.x-k8s.io/kubelet-authenticator-attestation-versions": "insecure/v1",
}

// file files a request as the bootstrap-token user and returns the object's name,
// which the server chose.
func (j *join) file(spec *csr.Spec) string {
	j.t.Helper()
	return j.fileAs(j.bootstrapper, spec)
}

func (j *join) fileAs(user kubernetes.Interface, spec *csr.Spec) string {
	j.t.Helper()
	var usages []certificatesv1.KeyUsage
	for _, usage := range spec.Usages {
		usages = append(usages, certificatesv1.KeyUsage(usage))
	}
	created, err := user.CertificatesV1().CertificateSigningRequests().Create(j.t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Annotations: lies},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: spec.Request, SignerName: spec.SignerName, Usages: usages, ExpirationSeconds: spec.ExpirationSeconds,
			Username: "admin", Groups: []string{"system:masters"}, // the server writes its own
		},
		Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByMyself"}}}, // dropped
	}, metav1.CreateOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	if len(created.Status.Conditions) != 0 || created.Spec.Username == "admin" {
		j.t.Fatalf("the server took the requester's word: %q, %+v", created.Spec.Username, created.Status)
	}
	return created.Name
}

// get is the object as a controller of client-go has it.
func (j *join) get(name string) *certificatesv1.CertificateSigningRequest {
	j.t.Helper()
	object, err := j.controller.CertificatesV1().CertificateSigningRequests().Get(j.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	return object
}

// stored is the object for package csr, out of the JSON that the server sends and
// also out of that of client-go's type: both must say the same.
func (j *join) stored(name string) *csr.Request {
	j.t.Helper()
	sent, err := j.controller.CertificatesV1().RESTClient().Get().Resource("certificatesigningrequests").Name(name).
		SetHeader("Accept", "application/json").Do(j.t.Context()).Raw()
	if err != nil {
		j.t.Fatal(err)
	}
	request, err := csr.ParseServerObject(sent)
	if err != nil {
		j.t.Fatal(err)
	}
	typed, err := json.Marshal(j.get(name))
	if err != nil {
		j.t.Fatal(err)
	}
	again, err := csr.ParseServerObject(typed)
	if err != nil {
		j.t.Fatal(err)
	}
	again.APIVersion, again.Kind = request.APIVersion, request.Kind // client-go drops these two
	if diff := cmp.Diff(request, again, cmpopts.IgnoreUnexported(csr.Request{})); diff != "" {
		j.t.Fatalf("the object depends on the way it was read (-server +client-go):\n%s", diff)
	}
	return request
}

// decide writes a decision about an object as the control plane's side. The server would
// answer a conflict if another object had been checked, or another version of it.
func (j *join) decide(request *csr.Request, unplaced csr.UnplacedDecision) {
	j.t.Helper()
	d := unplaced.For(request)
	if d.Condition == "" {
		j.t.Fatalf("nothing is to be written: %v, %s: %s", d.Verdict, d.Reason, d.Message)
	}
	if err := j.write(request.Metadata.Name, d); err != nil {
		j.t.Fatal(err)
	}
}

// write puts a decision where it says, onto the object that it says.
func (j *join) write(name string, d csr.Decision) error {
	j.t.Helper()
	object := j.get(name)
	object.UID, object.ResourceVersion = types.UID(d.UID), d.ResourceVersion
	object.Status.Conditions = append(object.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.RequestConditionType(d.Condition), Status: corev1.ConditionTrue, Reason: d.Reason, Message: d.Message})
	requests := j.controller.CertificatesV1().CertificateSigningRequests()
	var err error
	switch d.Subresource {
	case csr.SubresourceApproval:
		_, err = requests.UpdateApproval(j.t.Context(), name, object, metav1.UpdateOptions{})
	case csr.SubresourceStatus:
		_, err = requests.UpdateStatus(j.t.Context(), object, metav1.UpdateOptions{})
	default:
		j.t.Fatalf("a decision for the subresource %q", d.Subresource)
	}
	return err
}

// challenge reads the challenge as the node does.
func (j *join) challenge(name string) []byte {
	j.t.Helper()
	object, err := j.bootstrapper.CertificatesV1().CertificateSigningRequests().Get(j.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	typed, err := json.Marshal(object)
	if err != nil {
		j.t.Fatal(err)
	}
	request, err := csr.ParseServerObject(typed)
	if err != nil {
		j.t.Fatal(err)
	}
	der, err := attest.ChallengeOf(request)
	if err != nil {
		j.t.Fatal(err)
	}
	return der
}

// publish writes the certificate as the control plane's side.
func (j *join) publish(name string, pem []byte) {
	j.t.Helper()
	object := j.get(name)
	object.Status.Certificate = pem
	_, err := j.controller.CertificatesV1().CertificateSigningRequests().UpdateStatus(j.t.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
}
