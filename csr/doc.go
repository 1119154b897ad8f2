// Package csr handles a node's certificate request from both sides. A node makes one with
// [Create] and [Bundle.Spec], and sends it. A control plane takes it in four steps:
//
//  1. [Filed] joins the node's request with the facts that the server has about the
//     sender. On Kubernetes the API server does that; see [ParseServerObject].
//  2. [Policy.Check] holds the request against every rule, and asks the inventory which
//     machine is to be the node. It knows nothing about evidence: what passes is [Checked].
//  3. [Checked.Vouch], called by the verifier of the evidence, says which machine has
//     proven to be the one, and grants it names. The result is [Attested].
//  4. [CA.Issue] makes the certificate from that value and from nothing else.
//
// The package's example is these four. Steps 2 and 3 are usually a verifier's. If you accept
// one kind of evidence and have its verifier, call that; its own result is then
// [Attested.Details]. A caller that accepts other people's providers has each as a [Provider] and calls
// [Verify], which checks the result against the request.
//
// [Attested.Decision] approves, and nothing else does. [Decide] turns an error into
// a denial or a retry. Neither can be written before [UnplacedDecision.For] has made a [Decision] of it
// for the object: a request that is already approved can no longer be denied, for example, only made
// Failed, with a write to the status subresource.
//
// The request travels in CertificateSigningRequest.spec.request as PEM blocks: a PKCS#10
// request, and after it the name of an attestation provider and that provider's evidence
// (Cluster API kubelet authentication, "CSR PEM Blocks"). kube-apiserver looks only at the
// first block, so this package is strict about everything: whatever it accepts has exactly
// one encoding and one reading.
//
// Refusals are [Error] values. Each names its [Check], which can be matched with errors.Is.
package csr
