// Package membership answers which machine may be which node: an attest.Authorizer of
// each kind. [StaticList] admits the machines of a list. [FirstUse] is trust on first
// use, over a [Registry] that remembers which machine is which node. [Both] admits what
// two authorizers admit.
//
// A registry's rules are the methods of [Held]: pure functions over records. A registry
// over a store with transactions is a [Store] under [NewRegistry]; [NewMemoryRegistry]
// is one, package boltregistry another, on disk. One over a store without transactions
// calls the rules itself.
package membership
