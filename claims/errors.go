package claims

import (
	"cmp"
	"fmt"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one check that a token, a request or an answer must pass; see
// [refusal.Check].
type Check = refusal.Check

// The checks on a claim set's encoding; see [Parse].
const (
	// CheckSize: the claim set is longer than MaxClaimsSize.
	CheckSize Check = "claims-size"
	// CheckEncoding: the claim set is not a strict JSON object: a syntax error, invalid
	// UTF-8, a member that occurs twice or in two cases, bytes after the object.
	CheckEncoding Check = "claims-encoding"
	// CheckType: a claim has the wrong JSON type.
	CheckType Check = "claims-type"
	// CheckTime: a claim states a time before 1970 or after the year 9999.
	CheckTime Check = "claims-time"
)

// The checks of a token as a whole.
const (
	// CheckToken: not a token in compact form, or a header that is refused; the cause
	// comes from package jws.
	CheckToken Check = "token"
	// CheckTokenType: "typ" is something other than "JWT".
	CheckTokenType Check = "token-type"
	// CheckTokenID: "jti" is missing or too long.
	CheckTokenID Check = "token-id"
	// CheckNoKey: there is no key for the token's key ID.
	CheckNoKey Check = "no-key"
	// CheckSignature: no key made the signature.
	CheckSignature Check = "signature"
	// CheckIssuer: "iss" is not an accepted issuer.
	CheckIssuer Check = "issuer"
	// CheckAudience: the token is for other audiences.
	CheckAudience Check = "audience"
	// CheckExpired: "exp" has passed.
	CheckExpired Check = "expired"
	// CheckNotBefore: "nbf" is in the future.
	CheckNotBefore Check = "not-before"
	// CheckIssuedAt: "iat" is in the future.
	CheckIssuedAt Check = "issued-at"
	// CheckLifetime: a time is missing, or the token lives too long or not at all.
	CheckLifetime Check = "lifetime"
	// CheckStale: "warnafter" has passed.
	CheckStale Check = "stale"
	// CheckPrivate: a private claim is missing or not a valid name, or the token has the
	// private claims of a legacy token.
	CheckPrivate Check = "private-claims"
	// CheckSubject: "sub" does not match the service account in the private claims.
	CheckSubject Check = "subject"
	// CheckBinding: the token is bound to both a Secret and something else.
	CheckBinding Check = "binding"
)

// The checks that compare the objects named in a token with those that exist. Those for the
// Node are [CheckNodeGone], [CheckNodeUID] and [CheckNodeDeleted].
const (
	// CheckServiceAccountGone: the service account does not exist.
	CheckServiceAccountGone Check = "service-account-gone"
	// CheckServiceAccountUID: it was deleted and recreated.
	CheckServiceAccountUID Check = "service-account-uid"
	// CheckServiceAccountDeleted: it is being deleted.
	CheckServiceAccountDeleted Check = "service-account-deleted"
	// CheckSecretGone: the Secret does not exist.
	CheckSecretGone Check = "secret-gone"
	// CheckSecretUID: it was deleted and recreated.
	CheckSecretUID Check = "secret-uid"
	// CheckSecretDeleted: it is being deleted.
	CheckSecretDeleted Check = "secret-deleted"
	// CheckPodGone: the pod does not exist.
	CheckPodGone Check = "pod-gone"
	// CheckPodUID: it was deleted and recreated.
	CheckPodUID Check = "pod-uid"
	// CheckPodDeleted: its deletion time has passed.
	CheckPodDeleted Check = "pod-deleted"
	// CheckPodNode: the pod is on a different node from the one in the token.
	CheckPodNode Check = "pod-node"
	// CheckPodServiceAccount: the pod's service account is not the token's.
	CheckPodServiceAccount Check = "pod-service-account"
)

// ErrRetry means that a question could not be answered yes or no for now: an object
// getter, a key set or a signer failed. The same call may succeed later.
const ErrRetry = refusal.ErrRetry

// ErrNotFound means that an object does not exist. An implementation of [Objects] returns
// an error that wraps it, preferably one made by [NewNotFound].
const ErrNotFound Check = "object not found"

// Error is a check that failed; see [refusal.Error]. It holds no token and no key.
type Error = refusal.Error

// retry returns the error for something that could not be obtained.
func retry(what string, err error) error {
	return refusal.Retry(fmt.Errorf("%s: %w", what, cmp.Or(err, alive.ErrNoAnswer)))
}
