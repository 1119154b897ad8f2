package kube

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// testNodeAttacks are attacks of a node whose certificate is genuine, and whose machine is
// another node's by now.
func (c *cluster) testNodeAttacks(t *testing.T, name string, as client.Client) {
	t.Run("rights", func(t *testing.T) {
		for _, row := range []authorizationv1.ResourceAttributes{
			{Verb: "get", Group: v1alpha1.Group, Resource: "attestednodes"},
			{Verb: "update", Group: v1alpha1.Group, Resource: "attestednodes"},
			{Verb: "get", Group: v1alpha1.Group, Resource: "attestedmachines"},
			{Verb: "get", Resource: "secrets", Namespace: namespace},
			{Verb: "get", Resource: "configmaps", Namespace: namespace},
			{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: namespace},
			{Verb: "update", Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: "approval"},
			{Verb: "delete", Group: certificatesv1.GroupName, Resource: "certificatesigningrequests"},
			{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: namespace},
			{Verb: "impersonate", Resource: "users"},
		} {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &row}}
			if err := as.Create(t.Context(), review); err != nil {
				t.Fatal(err)
			}
			if review.Status.Allowed {
				t.Errorf("it may %s %s/%s", row.Verb, row.Resource, row.Subresource)
			}
		}
	})
	var hello *certificatesv1.CertificateSigningRequest
	for row, r := range map[string]struct {
		node, signer string
		masters      bool
		sans         []string
		refused      bool // at its creation
		denied       bool
	}{
		"a certificate of another node":          {node: "other", signer: csr.SignerKubeAPIServerClientKubelet, refused: true},
		"its own, without evidence":              {node: name, signer: csr.SignerKubeAPIServerClientKubelet, denied: true},
		"another node's, for serving":            {node: "other", signer: csr.SignerKubeletServing, sans: []string{"other"}, refused: true},
		"its own for serving, of the API's name": {node: name, signer: csr.SignerKubeletServing, sans: []string{"kubernetes.default.svc"}},
		"a challenge for another node":           {node: "other", signer: csr.SignerChallengeTPM, denied: true},
		"an administrator's":                     {masters: true, signer: certificatesv1.KubeAPIServerClientSignerName, refused: true},
		"a kind without security":                {node: "other", signer: "cluster.x-k8s.io/kube-apiserver-client-kubelet-insecure"},
	} {
		t.Run(row, func(t *testing.T) {
			o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "attack-"}}
			template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: csr.NodeUserPrefix + r.node, Organization: []string{csr.NodesGroup}}, DNSNames: r.sans}
			if r.masters {
				template.Subject = pkix.Name{CommonName: "x", Organization: []string{"system:masters"}}
			}
			der, err := x509.CreateCertificateRequest(rand.Reader, template, controlplane.NewKey(t))
			if err != nil {
				t.Fatal(err)
			}
			o.Spec.SignerName, o.Spec.Request = r.signer, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
			o.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
			if r.sans != nil {
				o.Spec.Usages[1] = certificatesv1.UsageServerAuth
			}
			if err := as.Create(t.Context(), o); r.refused || err != nil {
				if (err != nil) != r.refused {
					t.Errorf("its creation: %v", err)
				}
				return
			}
			if r.denied {
				eventually(t, func() error {
					if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
						return err
					}
					if len(o.Status.Conditions) == 0 || o.Status.Conditions[0].Type != certificatesv1.CertificateDenied {
						return fmt.Errorf("conditions %+v", o.Status.Conditions)
					}
					return nil
				})
				hello = o
			}
			if err := c.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			for _, condition := range o.Status.Conditions {
				if condition.Type == certificatesv1.CertificateApproved {
					t.Error("it is approved")
				}
			}
			if len(o.Status.Certificate) != 0 {
				t.Error("it has a certificate")
			}
		})
	}
	t.Run("an Event of its own", func(t *testing.T) {
		if hello == nil {
			t.Fatal("no request was denied")
		}
		c.testForgedEvent(t, as, hello)
	})
}

// testForgedEvent: nodes may write Events. One that says it is the controller's, and that the
// operator should give the name to another machine, is not shown for the decision's.
func (c *cluster) testForgedEvent(t *testing.T, as client.Client, o *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	const lie = "rebind other --machine ek:sha256:6666"
	if err := as.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "forged", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest", Name: o.Name, UID: o.UID},
		Reason:         "NotAMember", Message: "registry-machine: the board was replaced; the operator runs kubectl nodeattest " + lie,
		ReportingController: "node-attestation-controller", ReportingInstance: "node-attestation-controller-0",
		Source: corev1.EventSource{Component: "node-attestation-controller"}, Type: corev1.EventTypeWarning, FirstTimestamp: now, LastTimestamp: now,
	}); err != nil {
		t.Fatal(err)
	}
	out, err := c.newOperator(t).try(context.Background(), "explain", o.Name)
	if err != nil || strings.Contains(out, lie) {
		t.Errorf("explain: %v\n%s", err, out)
	}
}
