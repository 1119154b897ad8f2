// Package v1alpha1 contains the custom resources of the group nodeattest.github.io, in which a
// cluster records which machine is which node. All are cluster-scoped, and only the controller
// writes them:
//
//   - [AttestedNode], named after the node, is authoritative: it says which machine the node
//     is.
//   - [AttestedMachine] and [AttestedMachineUID] point to the node: from a machine, and from
//     the UID of the inventory's Machine. A pointer counts only while the node's object says
//     the same.
//
// Everything that decides is in spec, since backups drop status; the status of an AttestedNode
// says what its machine has booted. Package registry reads and
// writes the objects; the manifests are in package deploy.
//
// +kubebuilder:object:generate=true
package v1alpha1
