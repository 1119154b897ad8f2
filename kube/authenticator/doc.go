// Package authenticator is the node's side of attestation on Kubernetes: it gets the kubelet
// its certificates, using evidence about the machine instead of a secret, and keeps them
// fresh.
//
//	a, err := authenticator.New(authenticator.Config{NodeName: "node-1", Dir: "/var/lib/kubelet-authenticator",
//		API: api, Kind: &authenticator.TPM{Path: "/dev/tpmrm0", AK: ak, Options: tpm.ProverOptions{EK: &ek}}})
//	err = a.Run(ctx)                    // a daemon that renews on its own clock
//	credential, err := a.Credential(ctx) // what an exec credential plugin prints
//
// The kubelet asks through an exec credential plugin (client.authentication.k8s.io/v1) and
// gets what is stored: a certificate that works is never held back. A certificate is obtained
// by hello, challenge and answer (package attest), each a CertificateSigningRequest, under the
// best credential there is: the previous certificate, then the recovery certificate, whose key
// never leaves the machine, then the bootstrap token. Every renewal attests again.
//
// Daemon and plugin work together or on their own, in any number of processes: only one of
// them attests at a time (package certstore), and failed attempts are repeated at growing
// intervals, which the next process respects too. A certificate is replaced only by one that has
// worked, and the client certificate before it is kept and gone back to if the API server does
// not know the new one.
//
// A [Kind] is one kind of evidence; [TPM] is the one for a TPM. Nothing else here is specific
// to a kind.
package authenticator
