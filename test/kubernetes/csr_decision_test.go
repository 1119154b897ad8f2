package kubernetes

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/apis/certificates/validation"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestDecisionsAreTaken gives every decision about requests in every state to the API
// server's validation: the write is valid at its subresource, and a
// request in which nothing is to be written is one that no decision could change.
func TestDecisionsAreTaken(t *testing.T) {
	outcomes := map[string]csr.UnplacedDecision{
		"accepted":  accepted(t),
		"refused":   csr.Decide(&csr.Error{Check: "usages"}),
		"undecided": csr.Decide(refusal.Retry(errors.New("no answer"))),
	}
	all := []string{csr.ConditionApproved, csr.ConditionDenied, csr.ConditionFailed, "example.com/Foreign"}
	for bits := range 1 << len(all) {
		var conditions []string
		for i, c := range all {
			if bits>>i&1 == 1 {
				conditions = append(conditions, c)
			}
		}
		if slices.Contains(conditions, csr.ConditionApproved) && slices.Contains(conditions, csr.ConditionDenied) {
			continue // there is no such object
		}
		for name, outcome := range outcomes {
			t.Run(name+" of "+strings.Join(append(conditions, "request"), " "), func(t *testing.T) {
				old := decidedRequest(t, conditions)
				view := &csr.Request{Metadata: csr.Metadata{UID: string(old.UID), ResourceVersion: old.ResourceVersion}}
				for _, c := range conditions {
					view.Status.Conditions = append(view.Status.Conditions, csr.Condition{Type: c, Status: "True"})
				}
				d := outcome.For(view)
				if d.Condition == "" {
					finished := slices.Contains(conditions, csr.ConditionDenied) || slices.Contains(conditions, csr.ConditionFailed)
					approved := slices.Contains(conditions, csr.ConditionApproved)
					if !finished && name != "undecided" && !(name == "accepted" && approved) {
						t.Errorf("got %v, and nothing to write", d.Verdict)
					}
					return
				}
				if faults := writeDecision(old, d); len(faults) != 0 {
					t.Errorf("%v, as %s through %s: %v", d.Verdict, d.Condition, d.Subresource, faults.ToAggregate())
				}
				// The smallest change is not taken, but for Failed, for which the server is lax.
				d.Subresource = csr.SubresourceStatus
				if faults := writeDecision(old, d); len(faults) == 0 && d.Condition != csr.ConditionFailed {
					t.Errorf("%s is taken through the status as well", d.Condition)
				}
				if d.Verdict == csr.VerdictFail {
					d.Condition, d.Subresource = csr.ConditionDenied, csr.SubresourceApproval
					if faults := writeDecision(old, d); len(faults) == 0 {
						t.Error("an approved request can be denied as well")
					}
				}
			})
		}
	}
}

// accepted is the decision about a request that was checked, and whose machine was verified.
func accepted(t *testing.T) csr.UnplacedDecision {
	t.Helper()
	object := decidedRequest(t, nil)
	spec := &csr.Spec{Request: object.Spec.Request, SignerName: object.Spec.SignerName, Usages: csr.PurposeClient.Usages(false)}
	user := csr.User{Username: csr.BootstrapUserPrefix + "abcdef", Groups: []string{csr.BootstrappersGroup, csr.AuthenticatedGroup}}
	policy := &csr.Policy{ClusterIDs: []string{"a-cluster"}, SignerNames: []string{csr.SignerClientTPM}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
		return &csr.Machine{Name: "machine-1", UID: "uid-1", NodeName: "node-1", BootstrapReady: true}, nil
	}}
	request := csr.Filed(spec, user, time.Now())
	request.Metadata.UID = string(object.UID)
	checked, err := policy.Check(t.Context(), request.Parsed())
	if err != nil {
		t.Fatal(err)
	}
	d := checked.Vouch("ek:1", csr.Grant{}, nil).Decision()
	if d.Verdict != csr.VerdictApprove {
		t.Fatalf("got %+v, want an approval", d)
	}
	return d
}

// writeDecision returns the server's objection to the write.
func writeDecision(old *certificates.CertificateSigningRequest, d csr.Decision) field.ErrorList {
	changed := old.DeepCopy()
	changed.UID, changed.ResourceVersion = types.UID(d.UID), d.ResourceVersion
	changed.Status.Conditions = append(changed.Status.Conditions, certificates.CertificateSigningRequestCondition{
		Type: certificates.RequestConditionType(d.Condition), Status: core.ConditionTrue, Reason: d.Reason, Message: d.Message, LastUpdateTime: metav1.Now()})
	if d.Subresource == csr.SubresourceStatus {
		return validation.ValidateCertificateSigningRequestStatusUpdate(changed, old)
	}
	return validation.ValidateCertificateSigningRequestApprovalUpdate(changed, old)
}

// decidedRequest is a request with these conditions as the server stores it.
func decidedRequest(t *testing.T, conditions []string) *certificates.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := csr.Create(csr.PurposeClient, key, "node-1", csr.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pem, err := (&csr.Bundle{Request: der, Provider: "tpm/v1", Data: []byte{0x30, 0}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r := &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "request", UID: "2b4a", ResourceVersion: "7"},
		Spec: certificates.CertificateSigningRequestSpec{Request: pem, SignerName: csr.SignerClientTPM,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth}},
	}
	for _, c := range conditions {
		r.Status.Conditions = append(r.Status.Conditions, certificates.CertificateSigningRequestCondition{
			Type: certificates.RequestConditionType(c), Status: core.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.Now()})
	}
	return r
}
