// Package attesttest has a node and a control plane for testing code that uses package attest:
// a node with a TPM, AK and EK certificates and a provider ID, and a control plane that trusts
// the node's issuer, knows the machine and issues certificates.
//
//	node := attesttest.NewNode(t, attesttest.NodeOptions{})
//	plane := attesttest.NewControlPlane(t, node)
//	issued, err := plane.Join(ctx, node)
//
// Everything is real except the machine: the TPM is the reference simulator (or swtpm, if a
// TPM is given), evidence is produced and verified by package attest, and requests are checked
// by package csr. The in-process simulator exists once per process: a second node needs a TPM
// of its own ([NodeOptions.TPM], for example tpmsim.Swtpm), or the first one must be closed.
//
// # Kinds of evidence
//
// If you write a kind of evidence, or a [csr.Provider] of your own, [Run] attacks it: honest
// requests must get a certificate, and no attack on the requester, the challenge or the evidence may.
// A [World] has machines in software, an inventory and a CA, so neither a TPM nor cgo is needed.
//
//	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents})
//	verifier, err := attest.NewVerifier(world.Config)
//	...
//	attesttest.Run(t, verifier, world)
//
// For documents that a platform signs, the attacks know the messages around them; any other evidence
// they change blindly. Add attacks on its own format as [WorldOptions.Attacks]. Attacks on evidence of
// TPMs, on requests and on PEM are in the test vectors.
package attesttest
