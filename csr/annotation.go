package csr

import (
	"crypto"
	"encoding/pem"
)

// AnnotationEndorsementKey is the key of the annotation that a TPM provider writes on
// a request, with the endorsement key that the platform names for the machine
// (Cluster API kubelet authentication, "TPM based providers"). It is for people.
// Whoever files a request can set it to anything, so nothing in this SDK reads it.
const AnnotationEndorsementKey = "cluster-x-k8s-io/tpm-endorsement-key"

// EndorsementKeyAnnotation returns the annotation for an endorsement key that the
// caller got from the platform or verified itself: the key as PEM of type PUBLIC KEY
// (RFC 7468, 13), in the canonical form of [CanonicalSPKI], whose errors it returns.
func EndorsementKeyAnnotation(key crypto.PublicKey) (name, value string, err error) {
	spki, err := CanonicalSPKI(key)
	if err != nil {
		return "", "", err
	}
	return AnnotationEndorsementKey, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})), nil
}
