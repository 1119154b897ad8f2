// Package membership answers which machine may be which node. A root of trust admits every
// machine that its issuer certified, so every verifier needs such an attest.Authorizer.
//
// Where the machines are known beforehand, [StaticList] admits those of a list, which is the
// inventory as well ([Members]). Where no source knows them, [FirstUse] is trust on first use: a
// [Registry] remembers which machine is which node, for one cluster and one kind of identity
// ([Scope]). [NewMemoryRegistry] makes one for tests, package boltregistry one on disk. [Both]
// admits what two authorizers both admit, such as a list and first use.
//
// If you write a registry: its rules are the methods of [Held], pure functions over records. One
// over a store with transactions is a [Store] passed to [NewRegistry]; one over a store without
// them calls the rules itself. attesttest.RunRegistry checks it.
package membership
