// Package bootstraptoken holds the tokens with which a node first speaks to a cluster, and
// what is done with them: their Secrets, the signed discovery document, and discovery.
//
// A [Token] is six public characters and sixteen secret ones, "abcdef.0123456789abcdef"
// (Kubernetes bootstrap discovery, "Bootstrap Token Structure"). It does two things. Its
// secret signs the cluster's discovery document, so that a node that knows nothing but
// the token and an address learns the cluster's CA; and it is a bearer token, so that the
// node may file a certificate request.
//
// On the node's side [Discover] finds the cluster. On the control plane's side a token
// lives in a Secret: [Create] makes one, [Secret.Object] and [Object.RevealYAML] give what
// kubeadm stores, [ParseSecret] and [ParseManifest] read it, [Authenticate] says who a bearer
// is, [Sign] signs the discovery document for all tokens, [Sweep] says which Secrets have
// ended, [Renew] which are to live longer, and [List] and [View] show them.
//
// # Secrets stay secret
//
// A token's secret, and the data of a token Secret, are held in a secret.Value: they are
// shown by [Token.Reveal], [Object.RevealYAML], [Object.RevealJSON], a [View] with
// InsecureShowSecrets and secret.Value.Reveal, and by nothing else, no error among it. What
// a server or a document says is put into errors as refusal.Error shows it.
//
// # Stricter than Kubernetes
//
// Kubernetes 1.36 has five readers of a token Secret: kube-apiserver, the bootstrap
// signer, the token cleaner, kubeadm, and Cluster API's. They do not agree. [ParseSecret]
// takes what all of them take and read the same, and says which [Check] failed; see the
// constants for what each of them passes over. A refusal is an answer; where a question
// could not be answered the error is [ErrRetry].
//
// Everything but discovery is a function of its arguments. The present is one of them; the
// zero time is refused, since nothing would have expired by then.
package bootstraptoken
