// Package authenticator is the node's side of attestation on Kubernetes: it gets the
// kubelet its certificates, by evidence about the machine in the place of a secret, and
// keeps them fresh.
//
//	a, err := authenticator.New(authenticator.Config{NodeName: "node-1", Dir: "/var/lib/kubelet-authenticator",
//		API: api, Kind: &authenticator.TPM{Path: "/dev/tpmrm0", EK: &ek, AK: ak}})
//	err = a.Run(ctx)                    // a daemon that renews on its own clock
//	credential, err := a.Credential(ctx) // what an exec credential plugin prints
//
// The kubelet asks through an exec credential plugin (client.authentication.k8s.io/v1) and
// gets what is stored: a certificate that works is never held back. A certificate is got by
// hello, challenge and answer (package attest), each a CertificateSigningRequest, under the
// best credential that there is: the certificate before, then the recovery certificate,
// whose key never leaves the machine, then the bootstrap token. Every renewal attests
// again.
//
// Daemon and plugin work together or alone, in any number of processes: one of them attests
// at a time (package certstore), and what failed is tried again later and later, also by
// the next process.
//
// A [Kind] is one kind of evidence; [TPM] is that of a TPM. Nothing else here knows of a
// kind.
package authenticator
