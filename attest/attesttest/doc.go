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
// # Providers
//
// If you write a [csr.Provider], [Run] can attack it: honest requests must get a certificate,
// and none of the attacks on requests, bindings, TPM statements, certificates, credentials and
// quotes may, on the road of the AK certificate and on that of the EK. A [World] has what the
// provider needs, with machines in software, so neither a TPM nor cgo is needed.
//
//	world := attesttest.NewWorld(t, attesttest.WorldOptions{})
//	attesttest.Run(t, newProvider(world), world)
//
// The package's example has a whole provider whose evidence does not come from a TPM.
package attesttest
