package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PointerName returns the name of the pointer for a machine's identity or for a Machine's UID:
// its whole SHA-256 in 64 lower-case hexadecimal digits. Identities are longer than an
// object's name may be, and contain characters that no name may contain.
func PointerName(identity string) string {
	digest := sha256.Sum256([]byte(identity))
	return hex.EncodeToString(digest[:])
}

// AttestedMachine points from a machine to its node. Its name is the [PointerName] of the
// machine's identity.
//
// +kubebuilder:object:root=true
type AttestedMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the pointer.
	Spec AttestedMachineSpec `json:"spec"`
}

// AttestedMachineSpec is a machine's pointer.
//
// +kubebuilder:object:generate=false
type AttestedMachineSpec struct {
	// Machine is the machine's identity. It never changes.
	Machine string `json:"machine"`

	NodeReference `json:",inline"`
}

// NodeReference names the node that a pointer points to.
//
// +kubebuilder:object:generate=false
type NodeReference struct {
	// NodeName is the name of an [AttestedNode]. The pointer counts only while that node has
	// the pointer's machine or Machine UID.
	NodeName string `json:"nodeName"`
	// Reservation is the version of the node's record for which the pointer was written: a
	// reservation is complete when all its pointers name its version.
	Reservation string `json:"reservation"`
}

// AttestedMachineList is a list of AttestedMachines.
//
// +kubebuilder:object:root=true
type AttestedMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// Items are the objects.
	Items []AttestedMachine `json:"items"`
}

// AttestedMachineUID points from the UID of the inventory's Machine to the node. Its name
// is the [PointerName] of the UID.
//
// +kubebuilder:object:root=true
type AttestedMachineUID struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the pointer.
	Spec AttestedMachineUIDSpec `json:"spec"`
}

// AttestedMachineUIDSpec is the pointer of a Machine's UID.
//
// +kubebuilder:object:generate=false
type AttestedMachineUIDSpec struct {
	// MachineUID is the UID. It never changes.
	MachineUID string `json:"machineUID"`

	NodeReference `json:",inline"`
}

// AttestedMachineUIDList is a list of AttestedMachineUIDs.
//
// +kubebuilder:object:root=true
type AttestedMachineUIDList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	// Items are the objects.
	Items []AttestedMachineUID `json:"items"`
}
