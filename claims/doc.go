// Package claims validates bound service-account tokens and decides whether a token was
// issued to a workload on the very machine that was attested. Start with [Validator]:
//
//	v, err := claims.NewValidator(claims.ValidatorConfig{Issuers: map[string]jws.KeySet{issuer: keys}, Audiences: audiences, …})
//	result, err := v.Validate(ctx, token)                    // a good token
//	result, facts, err := v.ValidateOnNode(ctx, token, node) // and from its own machine
//
// A bound token names the service account that it speaks for, and an object whose end is
// also the token's: a pod together with its node, a node, or a Secret (KEP-1205, KEP-4193), and
// in Kubernetes 1.37, a webhook configuration. The claim set is that of kube-apiserver 1.36 and
// 1.37, byte for byte when written by [Claims.Marshal]. Package apiserver issues and reviews tokens as kube-apiserver does;
// package extsigner signs them outside of kube-apiserver; package claimstest has a cluster that
// issues them to the tests of a service.
//
// # Validating
//
// [Validator] is stricter than the API server, and is meant for every other service: tokens
// expire and are bound to an object, the subject matches the private claims, a pod is still on the
// node that the token names, the node is still the same Node object, and with a [ReplayCache] each
// token ID is accepted only once. It gets the objects through [Objects]. A service that has only keys,
// issuer and audience, and no access to the API server, sets InsecureSkipObjects. One that lets the
// API server validate its tokens sets Review in place of the keys.
//
// # The attested node
//
// A token says on which node its pod ran, but anyone who holds it can send it, from any
// machine. [AttestedNode] is the machine at the other end of a connection, known from a verified
// node certificate, its record, or a result of package attest. [NodeCheck]
// compares it with the token, the Node object and the registry of machines: a token that
// was carried to another machine is refused. [Handler] does this for every request.
//
// # Errors
//
// A check that fails returns an [*Error] with its [Check]; errors.Is finds it. If no decision
// was possible, because an object could not be read, keys could not be fetched or a cache
// did not answer, the error wraps [refusal.ErrRetry]. A configuration that cannot be used gives
// [refusal.CheckConfig]. No error holds a token or a key.
package claims
