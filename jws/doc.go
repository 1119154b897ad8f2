// Package jws signs and verifies JSON Web Signatures (RFC 7515) of the two kinds that a
// Kubernetes cluster lives on: the detached ones of bootstrap discovery, and tokens in
// compact form, such as those of service accounts.
//
// # Discovery
//
// [SignDetached] and [VerifyDetached] make and check what the bootstrapsigner of
// Kubernetes writes into the cluster-info ConfigMap, byte for byte. A [Detached] encodes
// a payload once for many tokens.
//
// # Tokens
//
// [Verify] parses a token and checks its signature with a [KeySet]; [Parse] and
// [Key.Verify] are its two halves. A [Signer] signs one. The claims inside a token are
// not this package's: a verified token may be expired, or meant for somebody else.
//
// A [Key] is bound to one algorithm and one key ID, so that nothing in a token chooses how
// it is verified (RFC 8725, section 3.1). HS256 is for discovery alone: a token that names
// it, or none, is refused.
//
// There is one reading of everything that is accepted. Base64url has no padding, no line
// ends and no unused bits that are set; JSON objects have no member twice or in two
// cases; the header members crit and b64, which change the meaning of a signature, and
// jwk and x5c, which bring a key, are refused whatever they say, and those that say where
// a key is (jku, x5u) are never looked at. What go-jose refuses, with which kube-apiserver
// reads tokens, is refused here too. ECDSA signatures have the fixed width of their curve, and the salt of
// RSASSA-PSS the length of its hash. A high s is not refused: never take a signature, or
// a token as a whole, for the name of what it says.
//
// # Keys
//
// Public keys come from [NewKey], [ParseJWK], [ParseJWKS] and [ParsePEM]. Their IDs are
// derived as Kubernetes does it ([DeriveKeyID]) where nothing else is given.
//
// Every refusal is an [*Error] that names its [Check]. What could not be decided, because
// keys could not be fetched or a signer did not answer, is an error in which errors.Is
// finds [ErrRetry].
package jws
