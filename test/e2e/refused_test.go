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
	"github.com/nodeattest/nodeattest/test/controlplane"
)

// cannotMeddle tries, as the user who filed a request, everything that would change
// the object, and checks that the server forbids it.
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

// cannotSignHello checks that a hello which carries the challenge cannot be approved or
// signed, even by a mistake of the control plane's side.
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
	object.Status.Certificate = controlplane.CertificatePEM(j.node.TPM.CA().Root())
	if _, err := requests.UpdateStatus(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("sign for the challenge signer: got %v, want forbidden", err)
	}
	_, err := j.plane.verifier.Challenge(t.Context(), j.stored(name))
	if !errors.Is(err, csr.CheckRequestClosed) {
		t.Errorf("challenge again what carries a challenge: got %v, want %v", err, csr.CheckRequestClosed)
	}
}

// refusesOthers files the node's good answer in ways that it was not challenged for.
// Every bootstrap token can read it in the stored object.
func (j *join) refusesOthers(c *cluster, answer *csr.Spec) {
	t := j.t
	t.Helper()
	other := c.client(t, c.bootstrapper(otherTokenID))
	bare, err := (&csr.Bundle{Request: j.node.Subject.Request}).Spec(csr.SignerClientTPM, *answer.ExpirationSeconds)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := *answer
	elsewhere.SignerName = csr.SignerKubeAPIServerClientKubelet
	for _, attack := range []struct {
		what string
		name string
		want error // a Check, or csr.ErrOtherSigner
	}{
		{"by another bootstrap token", j.fileAs(other, answer), attest.CheckBindingRequester},
		{"for another lifetime", j.file(longer(answer)), attest.CheckBindingExpiration},
		{"without evidence", j.file(bare), csr.CheckAttestationProvider},
		{"under another signer", j.file(&elsewhere), csr.ErrOtherSigner},
	} {
		request := j.stored(attack.name)
		_, err := j.plane.verifier.Verify(t.Context(), request)
		if !errors.Is(err, attack.want) {
			t.Errorf("the answer, filed %s: got %v, want %v", attack.what, err, attack.want)
		}
		if errors.Is(attack.want, csr.ErrOtherSigner) {
			if d := csr.Decide(err).For(request); d.Verdict != csr.VerdictIgnore {
				t.Errorf("the answer, filed %s: got %v, want it ignored: it is not the controller's to decide", attack.what, d.Verdict)
			}
			continue
		}
		j.decide(request, csr.Decide(err))
		j.isDenied(t, attack.name)
	}
	j.failsApproved(answer)
}

// longer asks for twice the lifetime.
func longer(spec *csr.Spec) *csr.Spec {
	changed, seconds := *spec, 2**spec.ExpirationSeconds
	changed.ExpirationSeconds = &seconds
	return &changed
}

// failsApproved has a request approved by another account before the control plane's side
// has checked and refused it: it can no longer be denied.
func (j *join) failsApproved(answer *csr.Spec) {
	t := j.t
	t.Helper()
	name := j.file(longer(answer))
	before := j.stored(name).Metadata
	if err := j.write(name, csr.Decision{Condition: csr.ConditionApproved, Subresource: csr.SubresourceApproval, Reason: "ByHand",
		UID: before.UID, ResourceVersion: before.ResourceVersion}); err != nil {
		t.Fatal(err)
	}
	request := j.stored(name)
	_, err := j.plane.verifier.Verify(t.Context(), request)
	if d := csr.Decide(err); d.Verdict != csr.VerdictDeny {
		t.Fatalf("got %v, want a refusal (%v)", d.Verdict, err)
	} else if err := j.write(name, csr.Decision{Condition: csr.ConditionDenied, Subresource: csr.SubresourceApproval, Reason: d.Reason, Message: d.Message,
		UID: request.Metadata.UID, ResourceVersion: request.Metadata.ResourceVersion}); !apierrors.IsInvalid(err) {
		t.Errorf("deny what is approved: got %v, want invalid", err)
	}
	j.decide(request, csr.Decide(err))
	after := j.get(name).Status.Conditions
	if len(after) != 2 || after[0].Type != certificatesv1.CertificateApproved || after[1].Type != certificatesv1.CertificateFailed {
		t.Errorf("got the conditions %+v, want Approved and Failed", after)
	}
	j.isFinished(name)
}

// isFinished checks that no further decision is written for a decided request.
func (j *join) isFinished(name string) {
	t := j.t
	t.Helper()
	request := j.stored(name)
	_, err := j.plane.verifier.Verify(t.Context(), request)
	if d := csr.Decide(err); d.Verdict != csr.VerdictIgnore {
		t.Errorf("%s is finished: got %+v (%v), want it ignored", name, d, err)
	}
	for _, d := range []csr.Decision{csr.Decide(err).For(request), csr.Decide(nil).For(request)} {
		if d.Verdict != csr.VerdictIgnore || d.Condition != "" {
			t.Errorf("%s is finished: got %+v (%v), want it ignored", name, d, err)
		}
	}
}

// conflictsWithOthers writes a decision that is about an object of this name which is
// deleted, or of an earlier version.
func (j *join) conflictsWithOthers(request *csr.Request, decision csr.UnplacedDecision) {
	t := j.t
	t.Helper()
	for what, change := range map[string]func(*csr.Decision){
		"another UID":              func(d *csr.Decision) { d.UID = "00000000-0000-0000-0000-000000000000" },
		"another resource version": func(d *csr.Decision) { d.ResourceVersion = "1" },
	} {
		d := decision.For(request)
		change(&d)
		if err := j.write(request.Metadata.Name, d); !apierrors.IsConflict(err) {
			t.Errorf("write onto an object with %s: got %v, want a conflict", what, err)
		}
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
