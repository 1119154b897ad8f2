package requests

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// TestTrim checks what a cache keeps of requests.
func TestTrim(t *testing.T) {
	const pkcs10 = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
	const whole = pkcs10 + "-----BEGIN ATTESTATION DATA-----\nAAAA\n-----END ATTESTATION DATA-----\n"
	for name, row := range map[string]struct {
		request     string
		conditions  []certificatesv1.RequestConditionType
		certificate string
		want        string
	}{
		"not decided":      {request: whole, want: whole},
		"approved":         {request: whole, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, want: whole},
		"denied":           {request: whole, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, want: pkcs10},
		"approved, failed": {request: whole, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateFailed}, want: pkcs10},
		"signed":           {request: whole, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved}, certificate: "c", want: pkcs10},
		"denied, no PEM":   {request: "AAAA", conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, want: "AAAA"},
		"denied, nothing":  {conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}},
		"denied, plain":    {request: pkcs10, conditions: []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied}, want: pkcs10},
	} {
		t.Run(name, func(t *testing.T) {
			o := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
			o.Spec.Request, o.Status.Certificate = []byte(row.request), []byte(row.certificate)
			for _, c := range row.conditions {
				o.Status.Conditions = append(o.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c})
			}
			kept, err := trim(o)
			if err != nil || kept != any(o) || o.ManagedFields != nil || string(o.Spec.Request) != row.want {
				t.Errorf("kept %q, %v, want %q", o.Spec.Request, err, row.want)
			}
		})
	}
	gone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	if kept, err := trim(gone); err != nil || kept != any(gone) {
		t.Errorf("kept %v, %v", kept, err)
	}
}
