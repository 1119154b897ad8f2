// Package claims validates bound service-account tokens, and says whether a token was
// issued to a workload on the very machine that was attested. [Validator] is its entry:
//
//	v, err := claims.NewValidator(claims.ValidatorConfig{Issuer: issuer, Keys: keys, Audiences: audiences, …})
//	result, err := v.Validate(ctx, token)                    // a good token
//	result, facts, err := v.ValidateOnNode(ctx, token, node) // and from its own machine
//
// A bound token names the service account that it speaks for, and an object with which it
// dies: a pod together with its node, a node, or a Secret (KEP-1205, KEP-4193). The claim
// set is that of kube-apiserver 1.36, byte for byte where [Claims.Marshal] writes it.
// Package apiserver issues tokens and reviews them as kube-apiserver does; package
// extsigner signs them outside of it.
//
// # Validating
//
// [Validator] decides more strictly than the API server, for everybody else: tokens expire,
// the subject is that of the private claims, a pod is still on the node that the token
// names, the node is still the same Node object, and a token ID is good once where a
// [ReplayCache] says so. It gets the objects through [Objects]. A service with keys, issuer
// and audience alone, and no access to the API server, sets InsecureSkipObjects.
//
// # The attested node
//
// A token says on which node its pod ran. Whoever holds a token, on whatever machine, can
// send it. [AttestedNode] is what a verified node certificate, its record, or a result of
// package attest says about the machine at the other end of a connection. [NodeCheck]
// compares it with the token, the Node object and the registry of machines: a token that
// was carried to another machine is refused. [Handler] does so for every request.
//
// # Errors
//
// Refusals of one check are an [*Error] with its [Check]; errors.Is finds it. What could
// not be decided, because an object could not be read, keys could not be fetched or a
// cache did not answer, holds [ErrRetry]. A configuration that cannot be used is
// [refusal.CheckConfig]. No error holds a token or a key.
package claims
