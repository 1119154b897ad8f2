// Package registry is a membership.Registry over the custom resources of package api/v1alpha1:
// the cluster's API server records which machine is which node, and any number of replicas
// share it. All decisions are made by the rules of package membership; this package only
// reads, and writes by compare-and-swap.
//
// # How two objects change at once
//
// An API server changes one object at a time. The node's object is authoritative; a machine
// and a Machine UID each have a pointer to it that counts only while the node's object has
// them. Every write states the resource version that it replaces, and every read is live,
// except reads whose result the following write confirms (Options.Stale).
//
// A reservation writes the node's object first, then the machine's pointer, then the Machine
// UID's. Each pointer names the version that the node's object was given. So a
// reservation is complete when its last pointer names its version, and [Registry.Bind] checks
// that. Anyone who takes a pointer away from a lapsed reservation first ends the reservation
// itself, over its version: a Bind under way then fails. A change of a bound record (Rebind,
// Adopt) is written into the node's object as pending, with a deadline, and then proceeds in
// the same way.
//
// A process that dies between two writes leaves a reservation or a pending change. It is void
// after its deadline, and until then the same call finishes it. A pointer that does not count
// is overwritten by the next claim that needs it.
//
// # Records that have ended
//
// A lapsed reservation and a record that has rested long enough have no effect, like one that
// was never made, but the API server keeps their objects. Unlike one of
// membership.NewRegistry, whose every write removes some, this package only overwrites those
// that a claim meets: [Registry.Sweep] removes the others.
package registry
