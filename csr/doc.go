// Package csr is a node's certificate request, from both sides. A node makes one with
// [Create] and [Bundle.Encode]; a control plane reads it with [Parse], holds it against
// a [Policy], and issues a certificate from what the policy has checked.
//
// The request travels in CertificateSigningRequest.spec.request as PEM blocks: a
// PKCS#10 request, and behind it the name of an attestation provider and that
// provider's evidence (Cluster API kubelet authentication, "CSR PEM Blocks").
// kube-apiserver looks at the first block alone, so this package is strict about
// everything: for what it accepts there is one encoding, and one reading.
//
// Refusals are [Error] values. Each names its [Check], which errors.Is finds.
package csr
