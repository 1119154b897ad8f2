package boundtokens_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/boundtokens"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestBoundNode finds the machine and the certificate of a bound node, with one GET each.
func TestBoundNode(t *testing.T) {
	api, cluster := newCluster(t, boundtokens.Options{})
	api.put(recordPath, attestedNode())
	record, err := cluster.FindRecord(t.Context(), "node-a", credential)
	want := claims.CertificateRecord{CredentialID: credential, NodeName: "node-a", NodeUID: "node-uid", Machine: "ek:sha256:01", MachineUID: "machine-uid", ProviderID: "sim://a"}
	if err != nil || *record != want {
		t.Errorf("got %+v, %v", record, err)
	}
	machine, err := cluster.FindMachine(t.Context(), "node-a")
	if err != nil || *machine != (claims.RegisteredMachine{Identity: "ek:sha256:01", ProviderID: "sim://a", UID: "machine-uid"}) {
		t.Errorf("got %+v, %v", machine, err)
	}
	if len(api.asked) != 2 || api.asked[0] != "GET "+recordPath+" application/json" || api.asked[1] != api.asked[0] {
		t.Errorf("asked %q", api.asked)
	}
}

// TestUnboundNode changes the record of a bound node: neither its certificate nor its machine is found
// (ErrNotFound), or it cannot be decided.
func TestUnboundNode(t *testing.T) {
	now := metav1.Now()
	later, earlier := metav1.NewTime(now.Add(time.Minute)), metav1.NewTime(now.Add(-2*time.Minute))
	const both, certificate = "neither", "the machine alone"
	for name, tt := range map[string]struct {
		want   error
		what   string // is found, where want is an error
		change func(o *v1alpha1.AttestedNode)
	}{
		"as it was": {nil, "", func(*v1alpha1.AttestedNode) {}},
		"reserved": {claims.ErrNotFound, both, func(o *v1alpha1.AttestedNode) {
			o.Spec.State, o.Spec.Deadline, o.Spec.LastEnd, o.Spec.Certificates = v1alpha1.NodeReserved, &later, nil, nil
		}},
		"resting":             {claims.ErrNotFound, both, func(o *v1alpha1.AttestedNode) { o.Spec.State = v1alpha1.NodeResting }},
		"being deleted":       {claims.ErrNotFound, both, func(o *v1alpha1.AttestedNode) { o.DeletionTimestamp = &now }},
		"without evidence":    {claims.ErrNotFound, both, func(o *v1alpha1.AttestedNode) { o.Spec.Scope = "insecure document" }},
		"of an unknown state": {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.Spec.State = "Bounded" }},
		"damaged":             {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.Spec.Certificates[0].SPKISHA256 = "x" }},
		"without a machine":   {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.Spec.Machine = "" }},
		"being changed": {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) {
			o.Spec.Pending = &v1alpha1.PendingChange{Machine: "ek:sha256:02", Deadline: later}
		}},
		"being changed, its deadline just passed": {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) {
			o.Spec.Pending = &v1alpha1.PendingChange{Machine: "ek:sha256:02", Deadline: now}
		}},
		"not changed: the change has lapsed": {nil, "", func(o *v1alpha1.AttestedNode) {
			o.Spec.Pending = &v1alpha1.PendingChange{Machine: "ek:sha256:02", Deadline: earlier}
		}},
		"another node's":        {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.Name = "node-b" }},
		"an object without UID": {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.UID = "" }},
		"of another kind":       {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.Kind = "AttestedMachine" }},
		"of another version":    {refusal.ErrRetry, both, func(o *v1alpha1.AttestedNode) { o.APIVersion = "nodeattest.github.io/v2" }},
		"another certificate":   {claims.ErrNotFound, certificate, func(o *v1alpha1.AttestedNode) { o.Spec.Certificates[0].CredentialID = otherOne }},
		"no certificate":        {claims.ErrNotFound, certificate, func(o *v1alpha1.AttestedNode) { o.Spec.Certificates = nil }},
		"a serving certificate": {claims.ErrNotFound, certificate, func(o *v1alpha1.AttestedNode) { o.Spec.Certificates[0].SignerName = csr.SignerServingTPM }},
		"a recovery certificate": {claims.ErrNotFound, certificate, func(o *v1alpha1.AttestedNode) {
			o.Spec.Certificates[0].SignerName = "cluster.x-k8s.io/kubelet-attestation-recovery-tpm"
		}},
		"a certificate without evidence": {claims.ErrNotFound, certificate, func(o *v1alpha1.AttestedNode) { o.Spec.Certificates[0].SignerName = csr.SignerClientInsecure }},
		"a certificate that is not recorded yet": {refusal.ErrRetry, certificate, func(o *v1alpha1.AttestedNode) {
			o.Spec.Certificates[0].CredentialID, o.Spec.Certificates[0].NotBefore = "", nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			api, cluster := newCluster(t, boundtokens.Options{})
			o := attestedNode()
			tt.change(o)
			api.put(recordPath, o)
			record, err := cluster.FindRecord(t.Context(), "node-a", credential)
			wantError(t, err, tt.want)
			if (record != nil) != (tt.want == nil) {
				t.Errorf("record %+v", record)
			}
			machine, err := cluster.FindMachine(t.Context(), "node-a")
			if tt.what == certificate {
				tt.want = nil
			}
			wantError(t, err, tt.want)
			if (machine != nil) != (tt.want == nil) {
				t.Errorf("machine %+v", machine)
			}
		})
	}
}

// Another certificate that is just being issued does not hide one that is recorded.
func TestRecordedBeforeTheNext(t *testing.T) {
	api, cluster := newCluster(t, boundtokens.Options{})
	o := attestedNode()
	next := o.Spec.Certificates[0]
	next.CredentialID = ""
	o.Spec.Certificates = append([]v1alpha1.IssuedCertificate{next}, o.Spec.Certificates...)
	api.put(recordPath, o)
	if record, err := cluster.FindRecord(t.Context(), "node-a", credential); err != nil || record.CredentialID != credential {
		t.Errorf("got %+v, %v", record, err)
	}
}

// wantError fails the test unless err is nil or wraps want, and is a refusal only if want is.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || errors.Is(err, refusal.ErrRetry) != errors.Is(want, refusal.ErrRetry) || errors.Is(err, claims.ErrNotFound) != errors.Is(want, claims.ErrNotFound) {
		t.Errorf("got %v, want %v", err, want)
	}
}
