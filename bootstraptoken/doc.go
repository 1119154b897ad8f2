// Package bootstraptoken implements the tokens with which a node first talks to a cluster, their
// Secrets, the signed discovery document, and discovery.
//
// A [Token] is six public characters and sixteen secret ones, "abcdef.0123456789abcdef"
// (Kubernetes bootstrap discovery, "Bootstrap Token Structure"). It has two uses. Its secret
// signs the cluster's discovery document, so that a node that knows only the token and an
// address learns the cluster's CA. It is also a bearer token, with which the node may file a
// certificate request.
//
// On the node's side [Discover] finds the cluster. On the control plane's side a token lives in
// a Secret: [Create] makes one, [Secret.Object] and [Object.RevealYAML] return what kubeadm
// stores, [ParseSecretUnchecked] reads it, [Authenticate] says who a bearer is, [Sign] signs the
// discovery document for all tokens, [Sweep] says which Secrets have expired, [Renew] which are
// to live longer, and [List] and [View] show them.
//
// # Secrets stay secret
//
// A token's secret, and the data of a token Secret, are held in a secret.Value. They are shown
// only by [Token.Reveal], [Object.RevealYAML], a [View] with
// InsecureShowSecrets and secret.Value.Reveal, never in an error. Text from a server or a
// document appears in errors as refusal.Error shows it.
//
// # Stricter than Kubernetes
//
// Kubernetes 1.36 has five readers of a token Secret: kube-apiserver, the bootstrap signer, the
// token cleaner, kubeadm, and Cluster API's. They do not agree. [ParseSecretUnchecked] accepts
// a Secret that all of them accept and read the same way, and says which [Check] failed. If a
// question could not be answered, the error is [refusal.ErrRetry].
//
// Everything except discovery is a function of its arguments. The current time is one of them;
// the zero time is refused, since nothing would have expired by then.
package bootstraptoken
