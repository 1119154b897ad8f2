// Package csr handles a node's certificate request from both sides. A node makes one with
// [Create] and files it with [Bundle.Spec]. A control plane checks the [Request] against a
// [Policy], and issues a certificate from what the policy has checked and a verification
// vouches for ([CA.Issue]).
//
// There are two ways to verify a request. If you accept one kind of evidence and have its
// verifier, call that: it checks the request against its policy itself, and its result has
// everything that it found out. A controller that serves several kinds, or kinds written by
// others, registers each as a [Provider] and calls [Providers.Verify], which selects the
// provider, refuses old versions, and checks the result against the request. Both end in a
// [Checked] and a [Verified]; a verifier's own result is then [Attested].Details. The
// signers to watch, and those of the CA, are [Providers.SignerNames], which come from the
// providers' policies.
//
// [Decide] turns the outcome into a [Decision], and [Decision.For] fits it to the object. A
// request that is already approved can no longer be denied: it can only be made Failed, with
// a write to the status subresource, and For says so.
//
// The request travels in CertificateSigningRequest.spec.request as PEM blocks: a PKCS#10
// request, and after it the name of an attestation provider and that provider's evidence
// (Cluster API kubelet authentication, "CSR PEM Blocks"). kube-apiserver looks only at the
// first block, so this package is strict about everything: whatever it accepts has exactly
// one encoding and one reading.
//
// Refusals are [Error] values. Each names its [Check], which can be matched with errors.Is.
package csr
