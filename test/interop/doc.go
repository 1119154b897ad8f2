// Package interop has tests of the SDK alongside third-party libraries for the same job:
// Kubernetes' cluster-bootstrap, go-jose, golang-jwt, go-oidc, HashiCorp's cap,
// and pyasn1 with the ASN.1 of csr-attestation. Each says where we must agree, and where we
// must not and why.
package interop
