// Package attesttest has a node and a control plane for tests of code that uses
// package attest: a node with a TPM, AK and EK certificates and a provider ID, and a
// control plane that trusts the node's issuer, knows the machine and issues
// certificates.
//
//	node := attesttest.NewNode(t, attesttest.NodeOptions{})
//	plane := attesttest.NewControlPlane(t, node)
//	issued, err := plane.Join(ctx, node)
//
// Everything is real but the machine: the TPM is the reference simulator (or
// swtpm, where a TPM is given), evidence is produced and verified by package
// attest, requests are checked by package csr. The in-process simulator exists
// once a process: a second node needs a TPM of its own ([NodeOptions.TPM], for
// example tpmsim.Swtpm), or the first one closed.
//
// # Providers
//
// Who writes a [csr.Provider] lets [Run] attack it: honest requests must get a
// certificate, and none of the attacks on requests, bindings, TPM statements,
// certificates, credentials and quotes may, on the road of the AK certificate and on
// that of the EK. A [World] has what the provider needs, with machines in software, so
// that neither a TPM nor cgo is needed.
//
//	world := attesttest.NewWorld(t, attesttest.WorldOptions{})
//	attesttest.Run(t, newProvider(world), world)
//
// The package's example has a whole provider whose evidence is no TPM's.
package attesttest
