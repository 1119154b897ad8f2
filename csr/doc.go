// Package csr is a node's certificate request, from both sides. A node makes one with
// [Create] and files it with [Bundle.Spec]; a control plane holds the [Request] against a
// [Policy], and issues a certificate from what the policy has checked and a verification
// vouches for ([CA.Issue]).
//
// There are two ways to a verification. Where one kind of evidence is taken, and its
// verifier is at hand, call that: it holds the request against its policy itself, and its
// result has all that it found out. A controller that serves several kinds, or kinds that
// others write, registers each as a [Provider] and calls [Providers.Verify]: that selects
// the provider, refuses old versions, and holds the result against the request. Both end
// in a [Checked] and a [Verified]; a verifier's own result is then [Attested].Details. The
// signers to watch, and those of the CA, are [Providers.SignerNames], which come from the
// providers' policies.
//
// [Decide] makes a [Decision] of the outcome, and [Decision.For] fits it to the object. A
// request that is already approved cannot be denied any more: it can only be made Failed,
// with a write to the subresource status, and For says so.
//
// The request travels in CertificateSigningRequest.spec.request as PEM blocks: a
// PKCS#10 request, and after it the name of an attestation provider and that
// provider's evidence (Cluster API kubelet authentication, "CSR PEM Blocks").
// kube-apiserver looks at the first block alone, so this package is strict about
// everything: for what it accepts there is one encoding, and one reading.
//
// Refusals are [Error] values. Each names its [Check], which errors.Is finds.
package csr
