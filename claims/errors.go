package claims

import "github.com/nodeattest/nodeattest/refusal"

// Check names one check that a token, a request or an answer must pass; see
// [refusal.Check].
type Check = refusal.Check

// The checks on a claim set's encoding; see [Parse].
const (
	// CheckSize: the claim set is longer than MaxClaimsSize.
	CheckSize Check = "claims-size"
	// CheckEncoding: the claim set is no strict JSON object: a syntax error, invalid
	// UTF-8, a member twice or in two cases, bytes behind the object.
	CheckEncoding Check = "claims-encoding"
	// CheckType: a claim has another JSON type than the one that it must have.
	CheckType Check = "claims-type"
	// CheckTime: a claim states a time before 1970 or after the year 9999.
	CheckTime Check = "claims-time"
)

// ErrRetry says that a question could not be answered now, neither yes nor no: an
// object getter, a key set or a signer failed. The same call may succeed later.
const ErrRetry = refusal.ErrRetry

// ErrNotFound says that an object does not exist. An implementation of [Objects]
// returns an error that errors.Is finds it in, best made by [NewNotFound].
const ErrNotFound Check = "object not found"

// Error is a check that failed; see [refusal.Error]. It holds no token and no key.
type Error = refusal.Error
