// Package authenticator is the node's side of attestation on Kubernetes: it gets and renews the
// kubelet's certificates, with evidence about the machine instead of a secret.
//
//	a, err := authenticator.New(authenticator.Config{NodeName: "node-1", Dir: "/var/lib/kubelet-authenticator",
//		API: api, Kind: &authenticator.TPM{Path: "/dev/tpmrm0", AK: ak, Options: tpm.ProverOptions{EK: &ek}}})
//	err = a.Run(ctx)                    // a daemon that renews on its own clock
//	credential, err := a.Credential(ctx) // the output of an exec credential plugin
//
// The kubelet runs an exec credential plugin (client.authentication.k8s.io/v1), which returns the
// stored certificate as long as it is usable. A certificate is requested by hello and answer (package
// attest), each a CertificateSigningRequest, with the best credential available: the client
// certificate, then the recovery certificate, whose key never leaves the machine, then the bootstrap
// token. Every renewal attests again.
//
// Daemon and plugin work together or on their own, in any number of processes: only one of
// them attests at a time (package certstore), and failed attempts are repeated at growing intervals,
// which are stored for the next process. A certificate is replaced only by one that the API server
// has accepted. The previous client certificate is kept, and used if the API server later rejects the
// new one.
//
// [Evidence] is the evidence of one machine; [TPM] is that of a TPM. The rest of the package is
// independent of the kind of evidence.
package authenticator
