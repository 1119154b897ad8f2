// Package extsigner is the core of an external signer of service-account tokens (KEP-740):
// a process that holds the cluster's keys, and signs for kube-apiserver what it asks for.
// [Service] is the signer's side, [Client] the API server's:
//
//	service, err := extsigner.NewService(extsigner.ServiceConfig{Issuer: issuer, Signer: s, Keys: keys, RefreshHint: time.Hour})
//	client, err := extsigner.NewClient(ctx, service, extsigner.ClientOptions{})
//
// Between the two is a [Signer], the three calls of k8s.io/externaljwt: in a cluster gRPC
// over a Unix socket, which this package knows nothing of. Both sides check every request
// and every answer, at least as kube-apiserver 1.36 does: the service signs nothing but the
// claims of bound tokens of its issuer, and the client takes no signature that does not
// verify with a published key.
//
// A refusal is an [*Error] with its [Check]. What was not answered holds [ErrRetry]. No
// error holds a token or a private key.
package extsigner
