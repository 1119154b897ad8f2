package kube

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmkey"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/signer"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/test/controlplane"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// signerUser is the signer's service account of the shipped manifests.
const signerUser = "system:serviceaccount:" + namespace + ":" + signer.DefaultName

// ownSigners is a cluster in which the signer's binary signs, and a machine.
type ownSigners struct {
	*cluster
	device     *tpmsim.TPM
	controller *replica
	signer     *replica
}

// TestSigner runs both binaries with our own signer names: client certificates, attested
// serving certificates, recovery.
func TestSigner(t *testing.T) {
	t.Parallel()
	controllerProgram, signerProgram := buildProgram(t, "node-attestation-controller"), buildProgram(t, "node-attestation-signer")
	c := &ownSigners{cluster: startCluster(t)}
	c.prepare(t)
	c.applyAdmission(t)
	manifests := manifests(t, "signer/rbac.yaml")
	c.apply(t, "signer/rbac.yaml")
	c.device = tpmsim.Swtpm(t, tpmsim.Options{})
	node := c.node(t, attesttest.NodeOptions{})
	c.writeRoots(t, node)
	controlplane.Write(t, c.dir, "inventory.yaml", []byte("machines:\n- nodeName: late-1\n- nodeName: late-2\n- nodeName: "+node.Name+"\n  providerID: "+attesttest.ProviderID+"\n  dnsNames: ["+node.Name+"]\n"))
	own := func(config map[string]any) {
		config["membership"].(map[string]any)["mode"] = "FirstUse"
		config["signers"] = map[string]any{"names": []any{csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM}, "maxLifetime": "1h", "maxRecoveryLifetime": "24h"}
		config["signer"].(map[string]any)["certificateFile"] = controlplane.Write(t, c.dir, "signer.crt", controlplane.CertificatePEM(c.ca.Cert))
		config["signer"].(map[string]any)["keyFile"] = controlplane.Write(t, c.dir, "signer.key", controlplane.PrivatePEM(t, c.ca.Key))
	}
	c.controller = c.startController(t, controllerProgram, "controller", own)
	c.controller.isReady(t)
	c.signer = c.startProgram(t, signerProgram, "signer", "signer", own)
	c.signer.isReady(t)

	bootstrapper := c.client(t, c.bearer(t, attesttest.TokenID))
	before := len(c.audit(t))
	leaf := c.joins(t, bootstrapper, node)
	c.checkCost(t, c.audit(t)[before:], 9, 4)
	if leaf.Subject.CommonName != csr.NodeUserPrefix+node.Name || leaf.CheckSignatureFrom(c.ca.Cert) != nil || leaf.NotAfter.After(time.Now().Add(time.Hour)) {
		t.Errorf("certificate of %s until %s", leaf.Subject, leaf.NotAfter)
	}
	if id, err := oid.ParseProviderID(leaf.Extensions); err != nil || id != attesttest.ProviderID {
		t.Errorf("provider ID %q, %v, want %q", id, err, attesttest.ProviderID)
	}
	kubelet := c.withCertificate(t, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: node.Key, Leaf: leaf})
	t.Run("serving certificates", func(t *testing.T) { c.testAttestedServing(t, kubelet, bootstrapper) })
	t.Run("recovery", func(t *testing.T) { c.testRecovery(t, kubelet) })
	t.Run("a new CA", func(t *testing.T) { c.testNewCA(t, bootstrapper, node) })
	whole := t // which the new process is to outlive the step in
	t.Run("the signer comes late", func(t *testing.T) {
		if status := c.signer.stop(t); status != 0 {
			t.Errorf("the signer ended with status %d", status)
		}
		c.testLate(t, bootstrapper, func() {
			c.signer = c.startProgram(whole, signerProgram, "late-signer", "signer", own)
		})
	})
	t.Run("an approval by another account", func(t *testing.T) { c.testFalseApproval(t, bootstrapper, node) })
	for _, r := range []*replica{c.controller, c.signer} {
		r.checkLog(t)
	}
	if status := c.signer.stop(t); status != 0 {
		t.Errorf("the signer ended with status %d", status)
	}
	t.Run("the controller comes late", func(t *testing.T) {
		object := c.approvedByHand(t, bootstrapper, c.plain(t, node, csr.SignerClientTPM))
		c.controller = c.startController(t, controllerProgram, "late-controller", own)
		c.finished(t, object)
		if last := object.Status.Conditions[len(object.Status.Conditions)-1]; last.Type != certificatesv1.CertificateFailed {
			t.Errorf("conditions %+v, want Failed", object.Status.Conditions)
		}
	})
	c.checkRights(t, manifests)
}

// node is a node on the cluster's machine.
func (c *ownSigners) node(t *testing.T, o attesttest.NodeOptions) *attesttest.Node {
	t.Helper()
	o.TPM, o.Road, o.ClusterID, o.ExpirationSeconds = c.device, attest.RoadEK, c.clusterID(t), 3600
	o.AK = tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}
	n := attesttest.NewNode(t, o)
	if o.Purpose == csr.PurposeRecovery {
		n.Subject.SignerName = csr.SignerRecoveryTPM
	}
	return n
}

// testLate has two machines approved while there is no signer, and their reservations end:
// one leaves nothing, the other the reservation of a join that was interrupted long ago.
func (c *ownSigners) testLate(t *testing.T, bootstrapper client.Client, startSigner func()) {
	approvedWithout := func(name string) (*attesttest.Node, *certificatesv1.CertificateSigningRequest) {
		n := attesttest.NewNode(t, attesttest.NodeOptions{TPM: tpmsim.Swtpm(t, tpmsim.Options{CA: c.device.CA()}), Name: name, Road: attest.RoadEK,
			ClusterID: c.clusterID(t), ExpirationSeconds: 3600, AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
		var err error
		if n.Subject.Request, err = csr.Create(csr.PurposeClient, n.Key, name, csr.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		answer := answers(t, bootstrapper, n)
		object := file(t, bootstrapper, answer)
		eventually(t, func() error {
			if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				return err
			}
			if len(object.Status.Conditions) != 1 || object.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
				return fmt.Errorf("it is not approved: %+v", object.Status)
			}
			return nil
		})
		return n, object
	}
	first, firstRequest := approvedWithout("late-1")
	_, secondRequest := approvedWithout("late-2")
	var reserved v1alpha1.AttestedNode
	if err := c.admin.Get(t.Context(), client.ObjectKey{Name: first.Name}, &reserved); err != nil || reserved.Spec.State != v1alpha1.NodeReserved {
		t.Errorf("the node is %+v, %v, want it reserved until there is a certificate", reserved.Spec, err)
	}
	c.clear(t)
	c.reservedLongAgo(t, first)
	startSigner()
	for _, object := range []*certificatesv1.CertificateSigningRequest{firstRequest, secondRequest} {
		if signed := decided(t, c.admin, object); len(signed.Status.Certificate) == 0 {
			t.Errorf("%s: %+v, want a certificate", object.Name, signed.Status.Conditions)
		}
	}
}

// testAttestedServing asks for serving certificates with evidence.
func (c *ownSigners) testAttestedServing(t *testing.T, kubelet, bootstrapper client.Client) {
	serving := c.node(t, attesttest.NodeOptions{Purpose: csr.PurposeServing, DNSNames: []string{attesttest.NodeName}})
	leaf := c.gets(t, kubelet, serving)
	if !slices.Equal(leaf.DNSNames, []string{attesttest.NodeName}) || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("a certificate for %v with usages %v", leaf.DNSNames, leaf.ExtKeyUsage)
	}
	other := c.node(t, attesttest.NodeOptions{Purpose: csr.PurposeServing, DNSNames: []string{"other"}})
	if _, err := challenged(t, kubelet, other); err == nil || !strings.Contains(err.Error(), "SanNotOwn") {
		t.Errorf("another name: %v, want a refusal", err)
	}
	if _, err := challenged(t, bootstrapper, serving); err == nil || !strings.Contains(err.Error(), "RequesterPurpose") {
		t.Errorf("a bootstrap token: %v, want a refusal", err)
	}
}

// testRecovery has the node get a recovery certificate, which opens the way to a new client
// certificate and to nothing else.
func (c *ownSigners) testRecovery(t *testing.T, kubelet client.Client) {
	software := c.node(t, attesttest.NodeOptions{Purpose: csr.PurposeRecovery})
	answer := answers(t, kubelet, software)
	denied(t, kubelet, file(t, kubelet, answer), "KeyResidency")

	recovery := c.node(t, attesttest.NodeOptions{Purpose: csr.PurposeRecovery, TPMKey: tpmkey.ECDSAP256})
	leaf := c.gets(t, kubelet, recovery)
	if leaf.Subject.CommonName != csr.RecoveryUserPrefix+recovery.Name {
		t.Errorf("a certificate of %s", leaf.Subject)
	}
	lost := c.withCertificate(t, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: recovery.Key, Leaf: leaf})
	again := c.node(t, attesttest.NodeOptions{})
	if leaf := c.joins(t, lost, again); leaf.Subject.CommonName != csr.NodeUserPrefix+again.Name {
		t.Errorf("a certificate of %s", leaf.Subject)
	}
	if _, err := challenged(t, lost, c.node(t, attesttest.NodeOptions{Name: "node-9"})); err == nil || !strings.Contains(err.Error(), "RequesterOtherNode") {
		t.Errorf("as another node: %v, want a refusal", err)
	}
	if err := lost.List(t.Context(), new(certificatesv1.CertificateSigningRequestList)); !apierrors.IsForbidden(err) {
		t.Errorf("it may list requests: %v", err)
	}
}

// testNewCA puts another CA in place of the first.
func (c *ownSigners) testNewCA(t *testing.T, bootstrapper client.Client, node *attesttest.Node) {
	next := controlplane.NewAuthority(t)
	controlplane.Write(t, c.dir, "signer.crt", controlplane.CertificatePEM(next.Cert)) // for a moment the two do not fit
	controlplane.Write(t, c.dir, "signer.key", controlplane.PrivatePEM(t, next.Key))
	time.Sleep(20 * time.Second)
	eventually(t, func() error { // it may look later, and to ask at once would cost a join each time
		return c.joins(t, bootstrapper, node).CheckSignatureFrom(next.Cert)
	})
}

// testFalseApproval has an administrator approve an unattested request, while the
// controller is away: the signer fails it.
func (c *ownSigners) testFalseApproval(t *testing.T, bootstrapper client.Client, node *attesttest.Node) {
	answer := answers(t, bootstrapper, node)
	c.controller.kill(t)
	other := c.client(t, c.bearer(t, otherTokenID))
	for name, row := range map[string]struct {
		as     client.Client
		spec   *csr.Spec
		reason string // empty: it is signed
	}{
		"without evidence":    {bootstrapper, c.plain(t, node, csr.SignerClientTPM), "AttestationProvider"},
		"another requester's": {other, answer, "BindingRequester"},
		"with good evidence":  {bootstrapper, answer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := c.approvedByHand(t, row.as, row.spec)
			c.finished(t, object)
			signed := len(object.Status.Certificate) != 0
			if last := object.Status.Conditions[len(object.Status.Conditions)-1]; signed != (row.reason == "") ||
				!signed && (last.Type != certificatesv1.CertificateFailed || last.Reason != row.reason) {
				t.Errorf("signed: %t, conditions %+v, want Failed %s", signed, object.Status.Conditions, row.reason)
			}
		})
	}
}

// plain is a request without evidence.
func (c *cluster) plain(t *testing.T, node *attesttest.Node, signerName string) *csr.Spec {
	t.Helper()
	plain, err := (&csr.Bundle{Request: node.Subject.Request}).Spec(signerName, 3600)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// approvedByHand files a request and has an administrator approve it.
func (c *cluster) approvedByHand(t *testing.T, as client.Client, spec *csr.Spec) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	object := file(t, as, spec)
	object.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True", Reason: "ByHand"}}
	if err := c.admin.SubResource("approval").Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// finished waits until an approved request is signed or failed.
func (c *cluster) finished(t *testing.T, object *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	eventually(t, func() error {
		if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if len(object.Status.Conditions) < 2 && len(object.Status.Certificate) == 0 {
			return errNotChallenged
		}
		return nil
	})
}
