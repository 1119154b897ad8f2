package jws

// What is longer is refused.
const (
	// MaxTokenSize is the length in bytes of the longest token that [Parse] reads.
	MaxTokenSize = 64 << 10
	// MaxPayloadSize is the length in bytes of the longest payload that is signed: more than
	// a Kubernetes object can hold.
	MaxPayloadSize = 2 << 20
	// MaxKeyIDSize is the length in bytes of the longest key ID, that of the external signer
	// of Kubernetes (KEP-740).
	MaxKeyIDSize = 1024
	// MaxJWKSize is the length in bytes of the longest JWK that [ParseJWK] reads. It leaves
	// room for a chain of certificates, which is ignored.
	MaxJWKSize = 64 << 10
	// MaxJWKSSize is the length in bytes of the longest set.
	MaxJWKSSize = 1 << 20
	// MaxJWKSKeys is how many keys a set may have, ignored ones counted.
	MaxJWKSKeys = 256
	// MaxPEMSize is the length in bytes of the longest text that [ParsePEM] reads.
	MaxPEMSize = 512 << 10
	// MaxDiscoverySize is the length in bytes of the longest OpenID Connect discovery
	// document that is read.
	MaxDiscoverySize = 64 << 10
	// MaxRotationStateSize is the length in bytes of the longest state that is read.
	MaxRotationStateSize = 1 << 20
)
