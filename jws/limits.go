package jws

// The limits of this package. Anything above them is refused.
const (
	// MaxTokenSize is the maximum length in bytes of a token that [Parse] reads.
	MaxTokenSize = 64 << 10
	// MaxPayloadSize is the maximum length in bytes of a payload that is signed: more than a
	// Kubernetes object can hold.
	MaxPayloadSize = 2 << 20
	// MaxKeyIDSize is the maximum length in bytes of a key ID, as in Kubernetes' external signer
	// (KEP-740).
	MaxKeyIDSize = 1024
	// MaxJWKSize is the maximum length in bytes of a JWK that [ParseJWK] reads. It leaves room
	// for a chain of certificates, which is ignored.
	MaxJWKSize = 64 << 10
	// MaxJWKSSize is the maximum length in bytes of a set.
	MaxJWKSSize = 1 << 20
	// MaxJWKSKeys is the maximum number of keys in a set, including ignored ones.
	MaxJWKSKeys = 256
	// MaxPEMSize is the maximum length in bytes of a text that [ParsePEM] reads.
	MaxPEMSize = 512 << 10
	// MaxDiscoverySize is the maximum length in bytes of an OpenID Connect discovery document
	// that is read.
	MaxDiscoverySize = 64 << 10
	// MaxRotationStateSize is the maximum length in bytes of a state that is read.
	MaxRotationStateSize = 1 << 20
)
