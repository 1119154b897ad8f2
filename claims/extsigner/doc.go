// Package extsigner is the core of an external signer of service-account tokens (KEP-740):
// a process that holds the cluster's keys and signs what kube-apiserver asks it to sign.
//
//	service, err := extsigner.NewService(extsigner.ServiceConfig{Issuer: issuer, Signer: s, Keys: keys, RefreshHint: time.Hour})
//
// The methods of a [Service] are the three calls of k8s.io/externaljwt. In a cluster these
// are gRPC over a Unix socket, which is outside the scope of this package. Every request and
// every answer is checked, at least as strictly as kube-apiserver 1.36 does: the service signs
// only the claims of bound tokens of its issuer, and returns only signatures that verify with
// a published key.
//
// A refusal is a [*refusal.Error] with its [refusal.Check]. If there was no answer, the error wraps
// [refusal.ErrRetry]. No error holds a token or a private key.
package extsigner
