// Package jws signs and verifies JSON Web Signatures (RFC 7515) of the two kinds that a
// Kubernetes cluster relies on: the detached ones of bootstrap discovery, and tokens in
// compact form, such as of service accounts.
//
// # Discovery
//
// A [Detached] makes and checks what Kubernetes' bootstrapsigner writes into the cluster-info
// ConfigMap, byte for byte. It encodes a payload once for many tokens. Its keys have 32 bytes
// or more, or are the secrets of bootstrap tokens ([Detached.Sign]).
//
// # Tokens
//
// [VerifySignature] parses a token and checks its signature with a [KeySet]; [Parse] and
// [Token.VerifySignature] are its two halves. A [Signer] signs tokens. The claims inside a
// token are not this package's concern: a signed token may be expired, or meant for someone
// else.
//
// A [Key] is bound to one algorithm and one key ID, so that nothing in a token chooses how it
// is verified (RFC 8725, section 3.1). HS256 is only for discovery: a token that names it, or
// none, is refused.
//
// Everything that is accepted can be read in only one way. Base64url has no padding, no line
// ends and no set unused bits; JSON objects have no duplicate members, even in different case;
// the header members crit and b64, which change the meaning of a signature, and jwk and x5c,
// which supply a key, are refused whatever they say; and the members that say where a key is
// (jku, x5u) are ignored. Tokens that go-jose refuses, with which kube-apiserver reads
// tokens, is refused here too. ECDSA signatures have the fixed width of their curve, and the
// salt of RSASSA-PSS has the length of its hash. A high s is not refused: never use a
// signature, or a whole token, as an identifier.
//
// # Keys
//
// Public keys come from [NewKey] and [ParseJWKS]. Their IDs are derived as in Kubernetes (the
// digest of the public key) if none are given.
//
// Every refusal is an [*Error] that names its [Check]. If something could not be decided,
// because keys could not be fetched or a signer did not answer, the error is one in which
// errors.Is finds [refusal.ErrRetry].
package jws
