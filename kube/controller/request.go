package controller

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/nodeattest/nodeattest/csr"
)

// Request returns the core's view of a certificate request (csr.Request). It shares the
// request's bytes with the object, and keeps what is parsed of them.
func Request(o *certificatesv1.CertificateSigningRequest) *csr.Request {
	r := &csr.Request{
		APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: csr.Metadata{
			Name: o.Name, GenerateName: o.GenerateName, UID: string(o.UID), ResourceVersion: o.ResourceVersion,
			CreationTimestamp: o.CreationTimestamp.Time, Labels: o.Labels, Annotations: o.Annotations,
		},
		Spec: csr.Spec{
			Request: o.Spec.Request, SignerName: o.Spec.SignerName, ExpirationSeconds: o.Spec.ExpirationSeconds,
		},
		User:   csr.User{Username: o.Spec.Username, UID: o.Spec.UID, Groups: o.Spec.Groups},
		Status: csr.Status{Certificate: o.Status.Certificate},
	}
	if o.DeletionTimestamp != nil {
		r.Metadata.DeletionTimestamp = &o.DeletionTimestamp.Time
	}
	for _, usage := range o.Spec.Usages {
		r.Spec.Usages = append(r.Spec.Usages, string(usage))
	}
	if o.Spec.Extra != nil {
		r.User.Extra = make(map[string][]string, len(o.Spec.Extra))
		for key, values := range o.Spec.Extra {
			r.User.Extra[key] = values
		}
	}
	for _, c := range o.Status.Conditions {
		r.Status.Conditions = append(r.Status.Conditions, csr.Condition{
			Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Message: c.Message,
			LastUpdateTime: c.LastUpdateTime.Time, LastTransitionTime: c.LastTransitionTime.Time,
		})
	}
	return r.KeepParsed()
}
