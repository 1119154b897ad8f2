package extsigner

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check that a request or an answer must pass; see [refusal.Check].
type Check = refusal.Check

// ErrRetry says that there was no answer, neither yes nor no. The same call may succeed
// later.
const ErrRetry = refusal.ErrRetry

// Error is a check that failed; see [refusal.Error]. It holds no token and no private key.
type Error = refusal.Error

// The checks on an external signer's requests and answers.
const (
	// CheckSignerClaims: what is to be signed is no claim set of the issuer, or lives
	// longer than the signer allows.
	CheckSignerClaims Check = "signer-claims"
	// CheckSignerHeader: the header of a signature is not exactly alg, kid and typ, or
	// one of them has a value that is not allowed.
	CheckSignerHeader Check = "signer-header"
	// CheckSignerKey: the key of a signature is not published, or excluded from
	// discovery.
	CheckSignerKey Check = "signer-key"
	// CheckSignerSignature: a signature is malformed or does not verify.
	CheckSignerSignature Check = "signer-signature"
	// CheckSignerKeys: the published keys are malformed, none, or come without a
	// refresh hint or timestamp.
	CheckSignerKeys Check = "signer-keys"
	// CheckSignerMetadata: the signer's maximum lifetime is below 600 seconds.
	CheckSignerMetadata Check = "signer-metadata"
)

// Signer signs service-account tokens outside the API server: the three
// operations of k8s.io/externaljwt, apis/v1, of KEP-740. It is what a server on a Unix
// socket implements and what a client of one looks like. Its methods are safe for
// concurrent use. An error in which errors.Is finds [ErrRetry] means that there was no
// answer.
type Signer interface {
	// Sign signs the payload of a token, given as the token's second segment: the claim
	// set in base64url without padding.
	Sign(ctx context.Context, segment string) (*Signature, error)
	// FetchKeys returns the public keys that tokens may be signed with.
	FetchKeys(ctx context.Context) (*Keys, error)
	// Metadata says what the signer can do. It is asked once, at the start.
	Metadata(ctx context.Context) (*Metadata, error)
}

// Signature is the answer to Sign.
type Signature struct {
	// Header is the first segment of the token: {"alg", "kid", "typ": "JWT"} in
	// base64url without padding.
	Header string
	// Signature is the third segment of the token.
	Signature string
}

// Keys is the answer to FetchKeys.
type Keys struct {
	// Keys are the keys, at least one.
	Keys []Key
	// DataTimestamp is when the keys were read from where they are kept.
	DataTimestamp time.Time
	// RefreshHintSeconds says how many seconds from now the keys should be fetched
	// again, more than 0. A key is published at least so long before it signs.
	RefreshHintSeconds int64
}

// Key is one public key of an external signer.
type Key struct {
	// KeyID is the key's "kid", 1 to 1024 bytes.
	KeyID string
	// Key is the public key, the DER of a SubjectPublicKeyInfo (PKIX): RSA, or ECDSA on
	// P-256, P-384 or P-521.
	Key []byte
	// ExcludeFromOIDCDiscovery says that the key verifies tokens, such as legacy ones,
	// and signs none: it stands in no discovery document.
	ExcludeFromOIDCDiscovery bool
}

// PublishedKey is a key of an answer that was checked; see [Keys.Check].
type PublishedKey struct {
	// Key is the key, bound to its algorithm and key ID.
	Key *jws.Key
	// ExcludeFromOIDCDiscovery is that of [Key].
	ExcludeFromOIDCDiscovery bool
}

// Metadata is the answer to Metadata.
type Metadata struct {
	// MaxTokenExpirationSeconds is the longest lifetime of a token that the signer
	// signs, at least 600.
	MaxTokenExpirationSeconds int64
}
