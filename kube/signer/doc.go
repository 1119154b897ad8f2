// Package signer signs the certificates of nodes with your own CA: a reconciler of requests
// that the controller, or a person, has approved.
//
// It trusts no approval: it verifies the evidence again, and signs nothing that fails. It is
// for the signers of package csr whose names begin with cluster.x-k8s.io, never for
// Kubernetes' own. Certificates are recorded before they are published (csr.CA.Issue).
//
// The key of a CA that an API server trusts for clients can make any user, including a member of
// system:masters. So the reconciler runs in a process of its own, which decides nothing else.
package signer
