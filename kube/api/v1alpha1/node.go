package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AttestedNode says which machine a node is. Its name is the node's name. There is at most one
// for each node name, and it is authoritative. To say that its machine is gone, release it: who
// deletes it has the record forgotten, while certificates of it may be valid.
//
// +kubebuilder:object:root=true
type AttestedNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the record.
	Spec AttestedNodeSpec `json:"spec"`
	// Status has the machine's last boots. No decision is based on it, and it is written after the
	// decision, if it can be.
	Status AttestedNodeStatus `json:"status,omitzero"`
}

// NodeState is the state of an [AttestedNode].
type NodeState string

// The states of an [AttestedNode].
const (
	// NodeReserved: claimed for the machine until the deadline. No certificate has been
	// issued.
	NodeReserved NodeState = "Reserved"
	// NodeBound: the machine is the node.
	NodeBound NodeState = "Bound"
	// NodeResting: the machine is gone, and no machine gets the name until the last end has
	// passed.
	NodeResting NodeState = "Resting"
)

// AttestedNodeSpec is the record of a node.
type AttestedNodeSpec struct {
	// Scope says what kind of identity Machine is: the String of a membership.Scope, such as
	// "ek RSA-2048". It changes only with a new reservation.
	Scope string `json:"scope"`
	// Machine is the machine's identity (attest.Identity), 1 to 1024 bytes.
	Machine string `json:"machine"`
	// MachineUID is the UID of the inventory's Machine, up to 253 bytes; empty if the
	// inventory has none.
	MachineUID string `json:"machineUID,omitempty"`
	// ProviderID is the machine's provider ID according to the inventory, up to 1024 bytes;
	// empty if it is not known.
	ProviderID string `json:"providerID,omitempty"`
	// State is Reserved, Bound or Resting.
	State NodeState `json:"state"`
	// Deadline is when a reservation ends; nil in the other states.
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// LastEnd is the latest end of any certificate that may have been issued under the name;
	// nil if none was. It never moves back while the machine is the node.
	LastEnd *metav1.Time `json:"lastEnd,omitempty"`
	// Certificates are the unexpired certificates with which the machine authenticates as this
	// node, at most 16, ordered by their end, earliest first. The one with which it files its
	// requests stays, however many others it gets.
	Certificates []IssuedCertificate `json:"certificates,omitempty"`
	// Pending is a change of machine or Machine UID that is under way, or nil.
	Pending *PendingChange `json:"pending,omitempty"`
}

// PendingChange is a change to a bound or resting record before it is complete. Until the
// deadline no other name gets the machine or the Machine UID.
type PendingChange struct {
	// Machine is the machine that the node is to become; empty if it does not change. For a resting
	// record, which is to be bound again, it is the machine that it has.
	Machine string `json:"machine,omitempty"`
	// MachineUID is the new UID of the inventory's Machine; empty if it does not change.
	MachineUID string `json:"machineUID,omitempty"`
	// Deadline is when the change lapses if it has not been finished.
	Deadline metav1.Time `json:"deadline"`
}

// IssuedCertificate is the record of a certificate (csr.IssuedRecord), or of the request for one
// that another signer has not yet made.
type IssuedCertificate struct {
	// CredentialID is "X509SHA256=" and 64 lower-case hexadecimal digits; empty as long as
	// there is no certificate.
	CredentialID string `json:"credentialID,omitempty"`
	// SignerName is the signer from which it was requested.
	SignerName string `json:"signerName"`
	// Machine is the identity of the machine that was verified.
	Machine string `json:"machine"`
	// MachineUID is the UID of the inventory's Machine at that time.
	MachineUID string `json:"machineUID,omitempty"`
	// NodeUID is the UID of the Node object that it was issued for, if known.
	NodeUID string `json:"nodeUID,omitempty"`
	// ProviderID is the provider ID that was vouched for.
	ProviderID string `json:"providerID,omitempty"`
	// RequestUID is the UID of the request object.
	RequestUID string `json:"requestUID,omitempty"`
	// KeyResidence says where the evidence has shown the key to be: "TPM" for one that cannot
	// leave its TPM, "Software" for one that can be copied; empty if it is not known.
	KeyResidence string `json:"keyResidence,omitempty"`
	// FiledWith is the CredentialID of the client certificate with which it was requested; empty
	// if that was another credential, such as a bootstrap token.
	FiledWith string `json:"filedWith,omitempty"`
	// SPKISHA256 is the SHA-256 of the key's SubjectPublicKeyInfo, 64 lower-case
	// hexadecimal digits.
	SPKISHA256 string `json:"spkiSHA256"`
	// NotBefore and NotAfter are the first and the last second of its validity. Without a
	// certificate, NotBefore is nil, and NotAfter is the latest end that there may be.
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	NotAfter  metav1.Time  `json:"notAfter"`
}

// AttestedNodeStatus has the boots that a node's machine has shown.
type AttestedNodeStatus struct {
	// Boot is the machine's last boot that was judged; nil if it sent no quote and none was asked for.
	Boot *MeasuredBoot `json:"boot,omitempty"`
	// PreviousBoot is the last one before Boot with other values or another judgement.
	PreviousBoot *MeasuredBoot `json:"previousBoot,omitempty"`
}

// MeasuredBoot is a boot as a TPM's quote and the firmware's event log have shown it, admitted or refused.
type MeasuredBoot struct {
	// Time is when it was judged. It is renewed for the same boot after an hour at the earliest.
	Time metav1.Time `json:"time"`
	// Machine is the identity of the machine whose TPM made the quote (attest.Identity). If it is not
	// the machine in spec, that has changed since.
	Machine string `json:"machine"`
	// PCRs are the quoted values of the SHA-256 bank, 64 lower-case hexadecimal digits each, by index in
	// decimal; none without a quote.
	PCRs map[string]string `json:"pcrs,omitempty"`
	// SecureBoot is On, Off, or Unknown where the log does not say; empty without tpm.secureBoot.
	SecureBoot string `json:"secureBoot,omitempty"`
	// GoodPCRs is the index in tpm.goodPCRs of the first set that the quote has, from 0; nil if it has
	// none, or there are no sets.
	GoodPCRs *int32 `json:"goodPCRs,omitempty"`
	// Wrong are the reasons for which the boot was refused, or would be with secureBoot: require: at most
	// two texts of up to 1024 bytes.
	Wrong []string `json:"wrong,omitempty"`
}

// AttestedNodeList is a list of AttestedNodes.
//
// +kubebuilder:object:root=true
type AttestedNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// Items are the objects.
	Items []AttestedNode `json:"items"`
}
