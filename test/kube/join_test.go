package kube

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestJoin is the whole join on a live cluster: two replicas of the controller under the
// shipped roles, Kubernetes' own signer, trust on first use over the API server.
func TestJoin(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.prepare(t)
	c.apply(t, "serving/rbac.yaml")
	c.startSigner(t)
	clusterID := c.clusterID(t)
	ca, err := tpmsim.NewCA(tpmsim.CAOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ours := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	theirs := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	node := c.nodeOn(t, ours, "node-1")
	p := &plane{config: attesttest.NewControlPlane(t, node).Config, clusterIDs: []string{clusterID}, inv: new(inventory)}
	p.run(t, c, "replica-1")
	p.run(t, c, "replica-2")

	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	other := c.client(t, c.bearer(t, otherTokenID))
	challenge, err := challenged(t, bootstrapper, node) // when the replicas have started
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a plain request is denied", func(t *testing.T) {
		plain, err := (&csr.Bundle{Request: node.Subject.Request}).Spec(node.Subject.SignerName, 3600)
		if err != nil {
			t.Fatal(err)
		}
		denied(t, bootstrapper, file(t, bootstrapper, plain), "AttestationProvider")
	})
	answer, err := node.Attester.Answer(t.Context(), challenge, node.Certified, node.Subject)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a stolen answer is denied", func(t *testing.T) {
		denied(t, other, file(t, other, answer), "BindingRequester")
	})

	leaf := c.joins(t, bootstrapper, node)
	t.Run("another machine is denied", func(t *testing.T) {
		_, err := challenged(t, bootstrapper, c.nodeOn(t, theirs, "node-1"))
		if err == nil || !strings.Contains(err.Error(), "NotAMember") || strings.Contains(err.Error(), "sha256") {
			t.Errorf("got %v, want a refusal that names no machine", err)
		}
	})
	t.Run("a second name is denied", func(t *testing.T) {
		_, err := challenged(t, bootstrapper, c.nodeOn(t, ours, "node-2"))
		if err == nil || !strings.Contains(err.Error(), "NotAMember") {
			t.Errorf("got %v, want a refusal", err)
		}
	})
	t.Run("serving certificates", func(t *testing.T) { testServing(t, c, node, leaf) })
	t.Run("an approval by another account", func(t *testing.T) { testForeignApproval(t, c, c.nodeOn(t, theirs, "node-1"), bootstrapper) })
	t.Run("an inventory that is away", func(t *testing.T) { testAway(t, p, node, bootstrapper) })
	t.Run("other people's requests", func(t *testing.T) { testOthers(t, c, node, bootstrapper) })
	p.checkLogs(t)
	c.checkEvents(t)
}

// joins has a node join, and returns its certificate as it is recorded.
func (c *cluster) joins(t *testing.T, as client.Client, node *attesttest.Node) *x509.Certificate {
	t.Helper()
	leaf := c.gets(t, as, node)
	c.recorded(t, node.Name, leaf)
	return leaf
}

// gets has a node attest, and returns the certificate that it gets.
func (c *cluster) gets(t *testing.T, as client.Client, node *attesttest.Node) *x509.Certificate {
	t.Helper()
	began := time.Now()
	answer := answers(t, as, node)
	signed := decided(t, as, file(t, as, answer))
	t.Logf("hello to certificate: %s", time.Since(began).Round(time.Millisecond))
	if len(signed.Status.Certificate) == 0 {
		t.Fatalf("no certificate: %+v", signed.Status.Conditions)
	}
	return certificateOf(t, signed)
}

// certificateOf reads the certificate of a signed request.
func certificateOf(t *testing.T, signed *certificatesv1.CertificateSigningRequest) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(signed.Status.Certificate)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

// denied waits until a request is denied for a reason.
func denied(t *testing.T, as client.Client, object *certificatesv1.CertificateSigningRequest, reason string) {
	t.Helper()
	condition := decided(t, as, object).Status.Conditions[0]
	if condition.Type != certificatesv1.CertificateDenied || condition.Reason != reason {
		t.Errorf("got %s %s: %s, want Denied %s", condition.Type, condition.Reason, condition.Message, reason)
	}
}

// recorded waits until the certificate is in the node's object.
func (c *cluster) recorded(t *testing.T, nodeName string, leaf *x509.Certificate) {
	t.Helper()
	var object v1alpha1.AttestedNode
	s := &object.Spec
	eventually(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKey{Name: nodeName}, &object); err != nil {
			return err
		}
		if !slices.ContainsFunc(s.Certificates, func(issued v1alpha1.IssuedCertificate) bool { return issued.CredentialID == csr.CredentialID(leaf) }) {
			return fmt.Errorf("the certificate is not recorded: %+v", s)
		}
		return nil
	})
	if s.State != v1alpha1.NodeBound || s.MachineUID == "" || leaf.NotAfter.After(s.LastEnd.Time) {
		t.Errorf("the node's object: %+v", s)
	}
	t.Logf("recorded: %s is %s until %s, with %s", nodeName, s.Machine, s.LastEnd.UTC(), csr.CredentialID(leaf))
}

// servingSpec is a kubelet's own request for a serving certificate with a name.
func servingSpec(t *testing.T, nodeName, dnsName string) *csr.Spec {
	t.Helper()
	request, err := csr.Create(csr.PurposeServing, controlplane.NewKey(t), nodeName, csr.CreateOptions{DNSNames: []string{dnsName}})
	if err != nil {
		t.Fatal(err)
	}
	return &csr.Spec{Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		SignerName: csr.SignerKubeletServing, Usages: csr.PurposeServing.Usages(false)}
}

// testServing files a kubelet's own requests: with the node's certificate, for its name and for
// another node's, and with another certificate.
func testServing(t *testing.T, c *cluster, node *attesttest.Node, leaf *x509.Certificate) {
	serving := func(dnsName string) *csr.Spec { return servingSpec(t, node.Name, dnsName) }
	kubelet := c.withCertificate(t, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: node.Key, Leaf: leaf})
	signed := decided(t, c.admin, file(t, kubelet, serving(node.Name)))
	if len(signed.Status.Certificate) == 0 {
		t.Fatalf("no serving certificate: %+v", signed.Status.Conditions)
	}
	var object v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: node.Name}, &object); err != nil {
		t.Fatal(err)
	}
	if end := certificateOf(t, signed).NotAfter; end.Before(leaf.NotAfter) || end.After(object.Spec.LastEnd.Time) {
		t.Errorf("the serving certificate ends %s, the client certificate %s, and the name rests until %s", end, leaf.NotAfter, object.Spec.LastEnd)
	}
	// One that would outlast the rest of the name is refused.
	long := serving(node.Name)
	long.ExpirationSeconds = new(int32(time.Until(object.Spec.LastEnd.Time) / time.Second))
	denied(t, c.admin, file(t, kubelet, long), "Expiration")
	denied(t, c.admin, file(t, kubelet, serving("node-2")), "SanNotOwn")
	fake := c.client(t, c.user(t, csr.NodeUserPrefix+node.Name, csr.NodesGroup)) // by the same CA, and not attested
	denied(t, c.admin, file(t, fake, serving(node.Name)), "RequesterCredential")
}

// withCertificate connects with a key that may be in a TPM.
func (c *cluster) withCertificate(t *testing.T, pair tls.Certificate) client.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(c.ca.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	config := c.user(t, "stranger")
	config.CertData, config.KeyData = nil, nil
	made, err := client.New(config, client.Options{Scheme: c.scheme, HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// testForeignApproval approves a request that attestation refuses, before the controller
// sees it: it is failed, unless the signer was faster.
func testForeignApproval(t *testing.T, c *cluster, thief *attesttest.Node, as client.Client) {
	plain, err := (&csr.Bundle{Request: thief.Subject.Request}).Spec(thief.Subject.SignerName, 3600)
	if err != nil {
		t.Fatal(err)
	}
	object := file(t, as, plain)
	object.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "ByHand"}}
	if err := c.admin.SubResource("approval").Update(t.Context(), object); err != nil {
		t.Logf("the controller was first: %v", err)
		return
	}
	c.finished(t, object)
	t.Logf("approved by another account:  %+v, certificate %d bytes", object.Status.Conditions, len(object.Status.Certificate))
	if len(object.Status.Certificate) == 0 && len(object.Status.Conditions) < 2 {
		t.Error("it is neither failed nor signed")
	}
	var node v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &node); err != nil || len(node.Spec.Certificates) != 1 {
		t.Errorf("the node's certificates: %+v, %v, want the attested one alone", node.Spec.Certificates, err)
	}
}

// testAway files a hello while the inventory does not answer: nothing is decided, and it is
// tried again, each time later, until it answers.
func testAway(t *testing.T, p *plane, node *attesttest.Node, as client.Client) {
	p.inv.away.Store(true)
	hello, err := node.Attester.Hello(t.Context(), node.Subject)
	if err != nil {
		t.Fatal(err)
	}
	p.inv.asked.Store(0)
	object, began := file(t, as, hello), time.Now()
	eventually(t, func() error {
		if asked := p.inv.asked.Load(); asked < 4 {
			return fmt.Errorf("the inventory was asked %d times", asked)
		}
		return nil
	})
	if err := as.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || len(object.Status.Conditions) != 0 {
		t.Errorf("conditions %+v, %v, want none", object.Status.Conditions, err)
	}
	// At 0, 0.2, 0.6, 1.4 and 3 seconds, by two replicas.
	if asked, took := p.inv.asked.Load(), time.Since(began); took < 3*time.Second && asked > 10 {
		t.Errorf("the inventory was asked %d times in %s", asked, took)
	}
	p.inv.away.Store(false)
	if reason := decided(t, as, object).Status.Conditions[0].Reason; reason != "AttestationChallenge" {
		t.Errorf("it is decided with %s", reason)
	}
}

// testOthers files a request for a signer that is not served.
func testOthers(t *testing.T, c *cluster, node *attesttest.Node, as client.Client) {
	plain, err := (&csr.Bundle{Request: node.Subject.Request}).Spec(csr.SignerClientTPM, 3600)
	if err != nil {
		t.Fatal(err)
	}
	object := file(t, as, plain)
	time.Sleep(time.Second)
	if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil || len(object.Status.Conditions) != 0 {
		t.Errorf("conditions %+v, %v, want none", object.Status.Conditions, err)
	}
}

// checkLogs looks for errors and secrets in the controllers' logs.
func (p *plane) checkLogs(t *testing.T) {
	t.Helper()
	lines := p.logs.all()
	for _, line := range lines {
		if strings.Contains(line, tokenSecret) || strings.Contains(line, "PRIVATE") {
			t.Errorf("a secret is logged: %s", line)
		}
		if strings.Contains(line, "forbidden") {
			t.Errorf("a right is missing: %s", line)
		}
		if strings.Contains(line, `"verdict"`) || strings.Contains(line, "Reconciler error") {
			t.Log(line)
		}
	}
}

// checkEvents expects an Event that says why a machine was refused.
func (c *cluster) checkEvents(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		var events eventsv1.EventList
		if err := c.admin.List(t.Context(), &events, client.InNamespace("default")); err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "NotAMember" && bytes.Contains([]byte(e.Note), []byte("ek:sha256:"))
		}) {
			return errNotChallenged
		}
		return nil
	})
}

// nodeOn is a node that joins the cluster with a TPM's endorsement key, and perhaps with a quote.
func (c *cluster) nodeOn(t *testing.T, device *tpmsim.TPM, name string, quote ...statement.PCRSelection) *attesttest.Node {
	t.Helper()
	clusterID := c.clusterID(t)
	n := attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: name, Road: attest.RoadEK, ClusterID: clusterID, ExpirationSeconds: 3600, Quote: quote,
		AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	n.Subject.SignerName = csr.SignerKubeAPIServerClientKubelet
	var err error
	if n.Subject.Request, err = csr.Create(csr.PurposeClient, n.Key, name, csr.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return n
}
