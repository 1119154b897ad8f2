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
// requests must get a certificate, and none of the attacks on who asks, on the challenge and on
// the evidence may. A [World] has what that needs, with machines in software, so neither a TPM nor
// cgo is needed.
//
//	world := attesttest.NewWorld(t, attesttest.WorldOptions{Documents: documents})
//	verifier, err := attest.NewVerifier(world.Config)
//	...
//	attesttest.Run(t, verifier, world)
//
// For documents that a platform signs, the attacks know what encloses them; for any other evidence
// they change it blindly, and what they cannot know is added as [WorldOptions.Attacks].
// Evidence of TPMs, requests and PEM have their attacks in the test vectors.
package attesttest
