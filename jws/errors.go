package jws

import (
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// ErrRetry means that a question could not be answered now, neither yes nor no: keys could not
// be fetched, a signer did not answer. It is never a refusal.
const ErrRetry = refusal.ErrRetry

// The checks on a signature as it was sent.
const (
	// CheckTokenSize: a token longer than MaxTokenSize, or an empty one.
	CheckTokenSize Check = "token-size"
	// CheckForm: not three segments, joined by dots (RFC 7515, section 7.1), or not a detached
	// signature of two, with two dots between them (appendix F).
	CheckForm Check = "form"
	// CheckBase64: a segment is not base64url without padding, line ends or set unused bits (RFC
	// 7515, section 2; RFC 4648, sections 3.5 and 5).
	CheckBase64 Check = "base64url"
	// CheckHeader: the header is not a JSON object, has duplicate members (even in different
	// case), has a member that this package reads with the wrong type, or supplies a key in jwk
	// or x5c.
	CheckHeader Check = "header"
	// CheckCritical: the header has crit or b64, which change what a signature means
	// (RFC 7515, section 4.1.11; RFC 7797).
	CheckCritical Check = "critical-header"
	// CheckAlgorithm: no algorithm, one that this package does not verify, or one other than the key's
	// (RFC 8725, sections 3.1 and 3.2).
	CheckAlgorithm Check = "algorithm"
	// CheckKeyID: a key ID for which there is no key, or one other than the key's, or one longer
	// than MaxKeyIDSize.
	CheckKeyID Check = "key-id"
	// CheckSignatureSize: a signature whose length is not what the algorithm and the key require.
	CheckSignatureSize Check = "signature-size"
	// CheckSignature: the signature is not the key's over these bytes.
	CheckSignature Check = "signature"
	// CheckPayloadSize: a payload longer than MaxPayloadSize, or one that makes a token longer
	// than MaxTokenSize.
	CheckPayloadSize Check = "payload-size"
)

// The checks on keys and sets of keys.
const (
	// CheckKey: a public key that is missing, malformed or weak: a point off its curve, a modulus
	// that is too short, too long or known to be breakable, an exponent that is even, one or
	// huge.
	CheckKey Check = "key"
	// CheckKeyUse: a key whose use or key_ops say that it is not for verifying
	// signatures (RFC 7517, sections 4.2 and 4.3).
	CheckKeyUse Check = "key-use"
	// CheckKeyType: a kind of key that this package does not support.
	CheckKeyType Check = "key-type"
	// CheckPrivate: private or symmetric key material where public keys are expected.
	CheckPrivate Check = "private-key"
	// CheckJWK: not a JWK as defined by RFC 7517 and RFC 7518, section 6.
	CheckJWK Check = "jwk"
	// CheckKeySet: a set of keys that is malformed, too large, empty, or has two keys for one key
	// ID and algorithm; or no set at all.
	CheckKeySet Check = "key-set"
	// CheckPEM: not PEM blocks of public keys (RFC 7468, section 13), one or more.
	CheckPEM Check = "pem"
)

// The checks of a [CryptoSigner] and of a [RotatingSigner].
const (
	// CheckSigner: a private key that did not sign.
	CheckSigner Check = "signer"
	// CheckSignerOutput: what a private key returned as its signature is not one, or is one with
	// another key or over other bytes. It is never passed on.
	CheckSignerOutput Check = "signer-output"
	// CheckRotationState: not a state as [RotatingSigner.State] writes it.
	CheckRotationState Check = "rotation-state"
)

// The checks of a [RemoteKeySet].
const (
	// CheckFetch: a request that failed, or an unusable response: a status other than 200, too
	// long, a redirect to a scheme other than https.
	CheckFetch Check = "fetch"
	// CheckDiscovery: not a document of OpenID Connect Discovery 1.0, section 3, or one whose
	// jwks_uri is not an https URL.
	CheckDiscovery Check = "discovery"
	// CheckIssuer: the document names an issuer other than the one it was fetched for.
	CheckIssuer Check = "issuer"
	// CheckHost: a jwks_uri or a redirect leads to a host that RemoteConfig does not
	// allow.
	CheckHost Check = "host"
	// CheckClosed: the set was closed.
	CheckClosed Check = "closed"
	// CheckBusy: as many calls as RemoteConfig allows are waiting for keys. It comes with
	// ErrRetry.
	CheckBusy Check = "busy"
)

// Error is one failed check; see [refusal.Error]. It never holds a private or symmetric
// key, nor a signature that one could compute.
type Error = refusal.Error

// bytesText says how long something is.
func bytesText(n int) string { return strconv.Itoa(n) + " bytes" }
