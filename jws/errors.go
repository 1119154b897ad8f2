package jws

import (
	"strconv"

	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check of this package; see [refusal.Check].
type Check = refusal.Check

// ErrRetry says that a question could not be answered now, neither yes nor no: keys
// could not be fetched, a signer did not answer. It is never a refusal.
const ErrRetry = refusal.ErrRetry

// The checks on a signature as it was sent.
const (
	// CheckTokenSize: a token longer than MaxTokenSize, or an empty one.
	CheckTokenSize Check = "token-size"
	// CheckForm: not three segments, joined by dots (RFC 7515, section 7.1), or no
	// detached signature of two, with two dots between them (appendix F).
	CheckForm Check = "form"
	// CheckBase64: a segment is not base64url without padding, line ends and unused
	// bits that are set (RFC 7515, section 2; RFC 4648, sections 3.5 and 5).
	CheckBase64 Check = "base64url"
	// CheckHeader: the header is no JSON object, has a member twice or in two cases, one
	// that this package reads is missing or of another type, or it brings a key in jwk
	// or x5c.
	CheckHeader Check = "header"
	// CheckCritical: the header has crit or b64, which change what a signature means
	// (RFC 7515, section 4.1.11; RFC 7797).
	CheckCritical Check = "critical-header"
	// CheckAlgorithm: an algorithm that this package does not verify, or another than
	// that of the key (RFC 8725, sections 3.1 and 3.2).
	CheckAlgorithm Check = "algorithm"
	// CheckKeyID: a key ID for which there is no key, or another than that of the key,
	// or one that is longer than MaxKeyIDSize.
	CheckKeyID Check = "key-id"
	// CheckSignatureSize: a signature of another length than the algorithm and the key
	// ask for.
	CheckSignatureSize Check = "signature-size"
	// CheckSignature: the signature is not that of the key over these bytes.
	CheckSignature Check = "signature"
	// CheckPayloadSize: a payload longer than MaxPayloadSize.
	CheckPayloadSize Check = "payload-size"
)

// The checks on keys and sets of keys.
const (
	// CheckKey: a public key that is none, is malformed or weak: a point off its curve,
	// a modulus that is too short, too long or known to be breakable, an exponent that
	// is even, one or huge.
	CheckKey Check = "key"
	// CheckKeyUse: a key whose use or key_ops say that it is not for verifying
	// signatures (RFC 7517, sections 4.2 and 4.3).
	CheckKeyUse Check = "key-use"
	// CheckKeyType: a kind of key that this package does not know.
	CheckKeyType Check = "key-type"
	// CheckPrivate: private or symmetric key material where public keys belong.
	CheckPrivate Check = "private-key"
	// CheckJWK: not a JWK as RFC 7517 and RFC 7518, section 6, have it.
	CheckJWK Check = "jwk"
	// CheckKeySet: a set of keys that is malformed, too large, empty, or that has two
	// keys for one key ID and algorithm; or no set at all.
	CheckKeySet Check = "key-set"
	// CheckPEM: not PEM blocks of public keys (RFC 7468, section 13), one or more.
	CheckPEM Check = "pem"
)

// The checks of a [CryptoSigner] and of a [RotatingSigner].
const (
	// CheckSigner: a private key that did not sign.
	CheckSigner Check = "signer"
	// CheckSignerOutput: what a private key returned as its signature is none, or one
	// with another key or over other bytes. It is never handed on.
	CheckSignerOutput Check = "signer-output"
	// CheckRotationState: no state as [RotatingSigner.State] writes it.
	CheckRotationState Check = "rotation-state"
)

// The checks of a [RemoteKeySet].
const (
	// CheckFetch: a request that failed, or a response that is none: another status
	// than 200, too long, a redirect to another scheme than https.
	CheckFetch Check = "fetch"
	// CheckDiscovery: no document of OpenID Connect Discovery 1.0, section 3, or one
	// whose jwks_uri is no https URL.
	CheckDiscovery Check = "discovery"
	// CheckIssuer: the document names another issuer than the one it was fetched for.
	CheckIssuer Check = "issuer"
	// CheckHost: a jwks_uri or a redirect leads to a host that RemoteConfig does not
	// allow.
	CheckHost Check = "host"
	// CheckClosed: the set was closed.
	CheckClosed Check = "closed"
	// CheckBusy: as many calls as RemoteConfig allows wait for keys. ErrRetry is found
	// beside it.
	CheckBusy Check = "busy"
)

// Error is one failed check; see [refusal.Error]. It never holds a private or symmetric
// key, nor a signature that one could compute.
type Error = refusal.Error

// bytesText says how long something is.
func bytesText(n int) string { return strconv.Itoa(n) + " bytes" }
