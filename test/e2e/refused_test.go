package e2e

import (
	"errors"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// cannotMeddle tries, as the user who filed a request, everything that would change
// the object, and wants the server to forbid it.
func (j *join) cannotMeddle(name string) {
	t := j.t
	t.Helper()
	requests := j.bootstrapper.CertificatesV1().CertificateSigningRequests()
	before := j.get(name)
	changed := func() *certificatesv1.CertificateSigningRequest {
		object := before.DeepCopy()
		object.Annotations = map[string]string{"example.com/approved": "true"}
		object.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ByMyself"}}
		return object
	}
	annotations := []byte(`{"metadata":{"annotations":{"example.com/approved":"true"}}}`)
	for what, try := range map[string]func() error{
		"approve": func() error {
			_, err := requests.UpdateApproval(t.Context(), name, changed(), metav1.UpdateOptions{})
			return err
		},
		"write the status": func() error {
			_, err := requests.UpdateStatus(t.Context(), changed(), metav1.UpdateOptions{})
			return err
		},
		"update": func() error {
			_, err := requests.Update(t.Context(), changed(), metav1.UpdateOptions{})
			return err
		},
		"patch annotations": func() error {
			_, err := requests.Patch(t.Context(), name, types.MergePatchType, annotations, metav1.PatchOptions{})
			return err
		},
		"patch annotations through the approval": func() error {
			_, err := requests.Patch(t.Context(), name, types.MergePatchType, annotations, metav1.PatchOptions{}, "approval")
			return err
		},
		"patch annotations through the status": func() error {
			_, err := requests.Patch(t.Context(), name, types.MergePatchType, annotations, metav1.PatchOptions{}, "status")
			return err
		},
		"apply": func() error {
			patch := []byte(`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"annotations":{"a/b":"c"}}}`)
			_, err := requests.Patch(t.Context(), name, types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: "e2e"})
			return err
		},
		"delete": func() error {
			return requests.Delete(t.Context(), name, metav1.DeleteOptions{})
		},
		"delete all": func() error {
			return requests.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s, as the requester: got %v, want forbidden", what, err)
		}
	}
	if after := j.get(name); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("%s was changed: resource version %s, want %s", name, after.ResourceVersion, before.ResourceVersion)
	}
}

// cannotSignHello: once it carries the challenge, a hello can be no approved request,
// not even by a mistake of the control plane's side.
func (j *join) cannotSignHello(name string) {
	t := j.t
	t.Helper()
	requests := j.controller.CertificatesV1().CertificateSigningRequests()
	object := j.get(name)
	object.Status.Conditions = append(object.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: csr.ReasonApproved})
	if _, err := requests.UpdateApproval(t.Context(), name, object, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("approve what carries a challenge: got %v, want invalid", err)
	}
	object = j.get(name)
	object.Status.Conditions = nil
	if _, err := requests.UpdateApproval(t.Context(), name, object, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("take the challenge back: got %v, want invalid", err)
	}
	object = j.get(name)
	object.Status.Certificate = certificatePEM(j.node.TPM.CA().Root())
	if _, err := requests.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("sign for the challenge signer: got %v, want forbidden", err)
	}
	_, err := j.plane.verifier.Challenge(t.Context(), j.stored(name))
	if !errors.Is(err, csr.RuleRequestClosed) {
		t.Errorf("challenge again what carries a challenge: got %v, want %v", err, csr.RuleRequestClosed)
	}
}

// refusesOthers files the node's good answer in ways that it was not challenged for.
// All can read it: it is in an object that every bootstrap token can get.
func (j *join) refusesOthers(c *cluster, answer *csr.Bundle) {
	t := j.t
	t.Helper()
	other := c.client(t, c.bootstrapper(otherTokenID))
	expires := j.node.Subject.ExpirationSeconds
	for _, attack := range []struct {
		what string
		name string
		want error // an attest.Check or a csr.Rule
	}{
		{"by another bootstrap token", j.fileAs(other, answer, csr.SignerClientTPM, expires), attest.CheckBindingRequester},
		{"for another lifetime", j.fileAs(j.bootstrapper, answer, csr.SignerClientTPM, 2*expires), attest.CheckBindingExpiration},
		{"without evidence", j.fileAs(j.bootstrapper, &csr.Bundle{Request: answer.Request}, csr.SignerClientTPM, expires), csr.RuleAttestationProvider},
		{"under another signer", j.fileAs(j.bootstrapper, answer, csr.SignerKubeAPIServerClientKubelet, expires), csr.RuleSignerName},
	} {
		_, err := j.plane.verifier.Verify(t.Context(), j.stored(attack.name))
		if !errors.Is(err, attack.want) {
			t.Errorf("the answer, filed %s: got %v, want %v", attack.what, err, attack.want)
		}
		if attack.want == csr.RuleSignerName {
			continue // not the controller's to decide
		}
		j.decide(attack.name, csr.Decide(err))
		j.isDenied(t, attack.name)
	}
}

func (j *join) isDenied(t *testing.T, name string) {
	t.Helper()
	conditions := j.get(name).Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != certificatesv1.CertificateDenied {
		t.Errorf("%s: got the conditions %+v, want Denied alone", name, conditions)
		return
	}
	t.Logf("refused %s: %s: %s", name, conditions[0].Reason, conditions[0].Message)
}
