package jws

// The limits of this package. Anything above them is refused.
const (
	// MaxTokenSize is the maximum length in bytes of a token that [Parse] reads.
	MaxTokenSize = 64 << 10
	// maxPayloadSize is the maximum length in bytes of a payload that is signed: more than a
	// Kubernetes object can hold.
	maxPayloadSize = 2 << 20
	// MaxKeyIDSize is the maximum length in bytes of a key ID, as in Kubernetes' external signer
	// (KEP-740).
	MaxKeyIDSize = 1024
	// maxJWKSSize is the maximum length in bytes of a set.
	maxJWKSSize = 1 << 20
	// MaxJWKSKeys is the maximum number of keys in a set, including ignored ones.
	MaxJWKSKeys = 256
	// maxDiscoverySize is the maximum length in bytes of an OpenID Connect discovery document
	// that is read.
	maxDiscoverySize = 64 << 10
)
