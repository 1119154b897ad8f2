package jws

import (
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// The checks on a signature as it was sent.
const (
	// checkTokenSize: a token longer than MaxTokenSize, or an empty one.
	checkTokenSize Check = "token-size"
	// checkForm: not three segments, joined by dots (RFC 7515, section 7.1), or not a detached
	// signature of two, with two dots between them (appendix F).
	checkForm Check = "form"
	// checkBase64: a segment is not base64url without padding, line ends or set unused bits (RFC
	// 7515, section 2; RFC 4648, sections 3.5 and 5).
	checkBase64 Check = "base64url"
	// CheckHeader: the header is not a JSON object, has duplicate members (even in different
	// case), has a member that this package reads with the wrong type, or supplies a key in jwk
	// or x5c.
	CheckHeader Check = "header"
	// checkCritical: the header has crit or b64, which change the meaning of a signature
	// (RFC 7515, section 4.1.11; RFC 7797).
	checkCritical Check = "critical-header"
	// CheckAlgorithm: no algorithm, one that this package does not verify, or one other than
	// the key's (RFC 8725, sections 3.1 and 3.2).
	CheckAlgorithm Check = "algorithm"
	// CheckKeyID: a key ID for which there is no key, or one other than the key's, or one longer
	// than MaxKeyIDSize.
	CheckKeyID Check = "key-id"
	// checkSignatureSize: a signature whose length is not the one that the algorithm and key
	// require.
	checkSignatureSize Check = "jws-signature-size"
	// checkSignature: the signature is not the key's over these bytes.
	checkSignature Check = "jws-signature"
	// checkHMACKeySize: a key for HS256 that is shorter than its hash output (RFC 7518, section
	// 3.2) and not a bootstrap token's secret.
	checkHMACKeySize Check = "hmac-key-size"
	// checkPayloadSize: a payload longer than 2,097,152 bytes, or one that makes a token longer
	// than MaxTokenSize.
	checkPayloadSize Check = "payload-size"
)

// The checks on keys and sets of keys.
const (
	// checkKey: a public key that is missing, malformed or weak: a point off its curve, a
	// modulus that is too short, too long or known to be breakable, an exponent that is even,
	// one or huge.
	checkKey Check = "key"
	// checkKeyUse: a key whose use or key_ops say that it is not for verifying
	// signatures (RFC 7517, sections 4.2 and 4.3).
	checkKeyUse Check = "key-use"
	// checkKeyType: a kind of key that this package does not support.
	checkKeyType Check = "jws-key-type"
	// checkPrivate: private or symmetric key material where public keys are expected.
	checkPrivate Check = "private-key"
	// checkJWK: not a JWK as defined by RFC 7517 and RFC 7518, section 6.
	checkJWK Check = "jwk"
	// checkKeySet: a set of keys that is malformed, too large, empty, or has two keys for one
	// key ID and algorithm; or no set at all.
	checkKeySet Check = "key-set"
)

// The checks of a [CryptoSigner] and of a [RotatingSigner].
const (
	// checkSigner: a private key that did not sign.
	checkSigner Check = "signer"
	// checkSignerOutput: the output of a private key is not a signature, or is a signature with
	// another key or over other bytes. It is never passed on.
	checkSignerOutput Check = "signer-output"
)

// The checks of a [RemoteKeySet].
const (
	// checkFetch: a request that failed, or an unusable response: a status other than 200, too
	// long, a redirect to a scheme other than https.
	checkFetch Check = "fetch"
	// checkDiscovery: not a document of OpenID Connect Discovery 1.0, section 3, or one whose
	// jwks_uri is not an https URL.
	checkDiscovery Check = "discovery"
	// checkIssuer: the document names an issuer other than the one it was fetched for.
	checkIssuer Check = "discovery-issuer"
	// checkHost: a jwks_uri or a redirect leads to a host that RemoteConfig does not
	// allow.
	checkHost Check = "host"
	// checkBusy: as many calls as may wait for keys are waiting. It comes with
	// refusal.ErrRetry.
	checkBusy Check = "busy"
)

// Error is one failed check; see [refusal.Error]. It never holds a private or symmetric
// key, nor a signature that one could compute.
type Error = refusal.Error

// bytesText says how long something is.
func bytesText(n int) string { return strconv.Itoa(n) + " bytes" }
