// Package membership decides which machine may be which node. A root of trust covers every machine
// that its issuer certified, so every verifier needs such an attest.Authorizer.
//
// If the machines are known beforehand, [StaticList] admits the machines of a list, which is the
// inventory as well ([Members]). If they are not, [FirstUse] is trust on first use: a [Registry]
// remembers which machine is which node, for one cluster and one kind of identity ([Scope]).
// [NewMemoryRegistry] makes one for tests, [OpenFileRegistry] opens one in a file. [Both] admits a machine if
// two authorizers both do, such as a list and first use.
//
// If you write a registry: its rules are the methods of [Held], pure functions over records. One
// over a store with transactions is a [Store] passed to [NewRegistry]; one over a store without
// them calls the rules itself. attesttest.RunRegistry checks it.
package membership
