// Package boundtokens gives package claims the answers of a Kubernetes API server, for a service that
// accepts a pod's token only from the attested machine for which it was issued. [New] makes a
// [Cluster], whose methods are the functions of a claims.Validator and a claims.Handler:
//
//	cluster, err := boundtokens.New(config, boundtokens.Options{})
//	validation := cluster.ValidatorConfig("https://service.example")
//	validation.InsecureAllowReplay = true                // or Replay
//	validator, err := claims.NewValidator(validation)
//	handler, err := claims.NewHandler(validator, next, cluster.HandlerOptions())
//
// The service asks for the client certificate of a node (mutual TLS), so its callers are the kubelet
// and what else runs with the machine's certificate, such as a CSI driver that gets tokens for the
// node's pods. The pods themselves have no such certificate.
//
// # By the API server or by keys
//
// By default a TokenReview validates each token, and each value in the answer is compared with the
// token's own claims. That ends with the pod, the service account and the Secret of a token, but
// kube-apiserver remembers a good token for 10 seconds, and a pod's token outlives its Node there:
// the Node is read for each token. With Issuers and their keys in place of Review,
// claims.Validator verifies the signature itself and reads the service account, the pod and the Node.
//
// # Every answer is live
//
// Nothing is remembered here: each read is an uncached GET, answered from the API server's storage.
// A watch is not used, since an API server tells it only once a minute that nothing has changed, so
// that a cache behind it cannot state an age below that. A request costs a TokenReview or a GET of
// the service account and of the pod, a GET of the Node, and two of the AttestedNode: one before the
// token is validated and one after.
//
// # Rights
//
// The account of the service needs, in the whole cluster,
//
//	create  tokenreviews   (authentication.k8s.io)   by TokenReview
//	get     nodes                                    always
//	get     attestednodes  (nodeattest.github.io)      always
//	get     pods, serviceaccounts                    with keys
//	get     secrets                                  with keys and Options.Secrets
//
// # Errors
//
// A question that the API server does not answer, or answers with anything but the object or
// "not found", gives refusal.ErrRetry: a claims.Handler answers 503. Each request ends after
// [Options].Timeout.
package boundtokens
