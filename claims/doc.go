// Package claims issues bound service-account tokens, validates them, and says whether a
// token was issued to a workload on the very machine that was attested.
//
// A bound token names the service account that it speaks for, and an object with which it
// dies: a pod together with its node, a node, or a Secret (KEP-1205, KEP-4193). The claim
// set is that of kube-apiserver 1.36, byte for byte where this package writes it.
//
// # Issuing
//
// [Issuer] serves the API server's TokenRequest: [Policy.Grant] decides, as a function of
// the request, the objects, the time and an ID; a [jws.Signer] signs. Refusals are
// [*StatusError] in Kubernetes' words. [SignerService] and [ExternalClient] are the two
// sides of an external signer (KEP-740), and [OIDCHandler] serves the documents with which
// others verify the tokens.
//
// # Validating
//
// [KubernetesValidator] decides what kube-apiserver decides, for the same reason.
// [StrictValidator] decides more strictly, and is what to use where nobody must agree with
// the API server: tokens expire, the subject is that of the private claims, a pod is still
// on the node that the token names, the node is still the same Node object, and a token
// ID is good once where a [ReplayCache] says so. Both get the objects through [Objects];
// there is no validator without one.
//
// # The attested node
//
// A token says on which node its pod ran. Whoever holds a token, on whatever machine, can
// send it. [AttestedNode] is what a verified node certificate or a result of package
// attest says about the machine at the other end of a connection; held against the token,
// the Node object and the registry of machines, a token that was carried to another
// machine is refused.
//
// # Errors
//
// Refusals of one check are an [*Error] with its [Check]; errors.Is finds it. What could
// not be decided, because an object could not be read, keys could not be fetched or a
// signer did not answer, holds [ErrRetry]. No error holds a token or a key.
package claims
