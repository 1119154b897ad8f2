package requests

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestTrim checks what a cache keeps of requests.
func TestTrim(t *testing.T) {
	const builtIn, ours = certificatesv1.KubeAPIServerClientKubeletSignerName, "example.com/signer"
	for name, row := range map[string]struct {
		signer      string
		conditions  []certificatesv1.RequestConditionType
		certificate string
		whole       bool
		end         certificatesv1.RequestConditionType // that is kept
		kept        string                              // the certificate
	}{
		"not decided":           {signer: ours, whole: true},
		"approved":              {signer: ours, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, whole: true},
		"denied":                {signer: ours, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, end: certificatesv1.CertificateDenied},
		"approved, failed":      {signer: ours, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateFailed}, end: certificatesv1.CertificateFailed},
		"signed":                {signer: ours, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, certificate: "c", kept: "signed"},
		"signed by Kubernetes'": {signer: builtIn, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, certificate: "c", kept: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "u", ResourceVersion: "7", Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
			o.Spec = certificatesv1.CertificateSigningRequestSpec{SignerName: row.signer, Request: []byte("request"), Username: "somebody"}
			o.Status.Certificate = []byte(row.certificate)
			for _, c := range row.conditions {
				o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Status: corev1.ConditionTrue, Message: "why"})
			}
			want := o.DeepCopy()
			want.ManagedFields = nil
			if !row.whole {
				want = &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}}
				want.Spec.SignerName, want.Status.Certificate = row.signer, []byte(row.kept)
				if row.end != "" {
					want.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: row.end, Status: corev1.ConditionTrue}}
				}
			}
			kept, err := trim(o)
			if err != nil || !apiequality.Semantic.DeepEqual(kept, want) {
				t.Errorf("kept %+v, %v, want %+v", kept, err, want)
			}
		})
	}
	gone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	if kept, err := trim(gone); err != nil || kept != any(gone) {
		t.Errorf("kept %v, %v", kept, err)
	}
}
