package controller

import (
	"crypto"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// endorsementKey returns the EK that was verified, or nil if the evidence has none
// (attest.Result.Details).
func endorsementKey(attested *csr.Attested) crypto.PublicKey {
	result, _ := attested.Details().(*attest.Result)
	if result == nil {
		return nil
	}
	of, ok := result.Details.(interface{ EndorsementKey() crypto.PublicKey })
	if !ok {
		return nil
	}
	return of.EndorsementKey()
}

// annotateEndorsementKey annotates a request with the EK of its machine, for people. An annotation of
// the requester's is replaced, and removed if no EK was verified.
func annotateEndorsementKey(object *certificatesv1.CertificateSigningRequest, ek crypto.PublicKey) {
	name, value, err := csr.EndorsementKeyAnnotation(ek)
	if err != nil {
		delete(object.Annotations, name)
		return
	}
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, name, value)
}
