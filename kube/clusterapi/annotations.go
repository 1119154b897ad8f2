package clusterapi

// The annotations that infrastructure providers and operators write. Cluster API has no fields for
// these, and removes fields that it does not know.
const (
	// AnnotationIdentity, on a Machine, is the canonical identity (attest.Identity) of the
	// machine that the provider has made or bought, such as "ek:sha256:<hex>". Evidence of
	// another identity is refused.
	AnnotationIdentity = "nodeattest.github.io/machine-identity"
	// AnnotationKind, on a Machine, is the kind of evidence by which it is known, such as "tpm".
	// Without it every authorized kind is.
	AnnotationKind = "nodeattest.github.io/kind"
	// AnnotationEvidence, on a Machine, is "none" for a machine that cannot attest: it has no
	// kind and no identity, and gets a certificate of the insecure signer alone.
	AnnotationEvidence = "nodeattest.github.io/evidence"

	// AnnotationAuthentication, on a Cluster, is the proposal's spec.security.kubeletAuthentication:
	// "true" or "false". Without it, it is "true": the controller runs for this Cluster. "false"
	// leaves all requests of the cluster's nodes alone.
	AnnotationAuthentication = "nodeattest.github.io/kubelet-authentication"
	// AnnotationAttestors, on a Cluster, is the proposal's spec.security.authorizedAttestors: the
	// kinds of evidence whose machines may join, with a comma between two, such as "tpm,gce".
	// Without it every configured kind is; the empty string authorizes none.
	AnnotationAttestors = "nodeattest.github.io/authorized-attestors"
)
