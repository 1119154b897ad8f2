// Package registry is a membership.Registry over the custom resources of package
// api/v1alpha1: the cluster's API server keeps which machine is which node, and any number
// of replicas share it. What is decided is decided by the rules of package membership;
// this package reads, and writes by compare-and-swap.
//
// # How two objects change at once
//
// An API server changes one object at a time. The node's object decides; a machine and a
// Machine UID each have a pointer to it that counts only while the node's object has them.
// Every write states the resource version that it is made over, and every read is live, but
// for those that the write after it proves (Options.Stale).
//
// A reservation writes the node's object first, then the machine's pointer, then that of the
// Machine UID, each with the version that the node's object has got: so a reservation is
// complete when its last pointer names its version, and [Registry.Bind] looks for that. Who
// takes a pointer away from a reservation that is over first ends the reservation itself,
// over its version: a Bind under way then fails. A change of a bound record (Rebind, Adopt)
// is written into the node's object as pending, with a deadline, then goes the same way.
//
// A process that dies between two writes leaves a reservation, or a pending change, that
// is worth nothing after its deadline and that the same call finishes before; a pointer
// that does not count is overwritten by whoever needs it.
package registry
