// Package membership answers which machine may be which node, with several kinds of
// attest.Authorizer. [StaticList] admits the machines of a list. [FirstUse] is trust on first
// use, over a [Registry] that remembers which machine is which node. [Both] admits what two
// authorizers both admit.
//
// A registry's rules are the methods of [Held]: pure functions over records. A registry over a
// store with transactions is a [Store] passed to [NewRegistry]: [NewMemoryRegistry] makes one,
// and package boltregistry another, on disk. A registry over a store without transactions
// calls the rules itself.
package membership
