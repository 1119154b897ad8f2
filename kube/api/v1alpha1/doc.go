// Package v1alpha1 has the custom resources of the group nodeattest.github.io in which a
// cluster keeps which machine is which node. All are cluster-scoped, and the controller
// alone writes them:
//
//   - [AttestedNode], named as the node, decides: it says which machine the node is.
//   - [AttestedMachine] and [AttestedMachineUID] point from a machine, and from the UID of
//     the inventory's Machine, to the node. A pointer counts only while the node's object
//     says the same.
//
// Everything that decides stands in spec, since backups drop status. Package registry
// reads and writes the objects; the manifests are in package deploy.
package v1alpha1
