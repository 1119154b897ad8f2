// Package interop has tests of the SDK beside other people's libraries for the same job:
// Kubernetes' cluster-bootstrap, go-jose, golang-jwt, go-oidc, HashiCorp's cap, and pyasn1 with
// the ASN.1 of csr-attestation. Each
// says where we must agree, and where not to and why.
package interop
