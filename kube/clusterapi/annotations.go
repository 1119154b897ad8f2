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

// The annotations of an AttestedNode whose record follows a Machine or a MachinePool ([Follow]). The sweep
// writes all of them, and no record without the first two is released or adopted by it.
const (
	// AnnotationMachine, on an AttestedNode, is the Machine or the MachinePool that its record is of:
	// <namespace>/<Cluster>/<name>. It is written while that object is there.
	AnnotationMachine = "nodeattest.github.io/cluster-api-machine"
	// AnnotationMachineUID is the UID of that Machine, or the slot of that pool ([Slots]). The other
	// annotations are of a record with this Machine UID, and of no other.
	AnnotationMachineUID = "nodeattest.github.io/cluster-api-machine-uid"
	// AnnotationClusterUID, on the AttestedNode of a pool's machine, is the UID of the Cluster. A pool of the
	// same name has been moved to another management cluster if its Cluster has another UID now; otherwise
	// it is another pool. A record whose pool was deleted loses it.
	AnnotationClusterUID = "nodeattest.github.io/cluster-api-cluster-uid"
	// AnnotationProviderID, on the AttestedNode of a pool's machine, is the provider ID of the machine. It is
	// written while spec.providerIDList of the pool has it; a machine whose ID has left the list is gone.
	AnnotationProviderID = "nodeattest.github.io/cluster-api-provider-id"
	// AnnotationGone is the time (RFC 3339) since which the machine is missing, on a record that the
	// sweep leaves to an operator, because more records were due than one run releases.
	AnnotationGone = "nodeattest.github.io/cluster-api-machine-gone"
)
