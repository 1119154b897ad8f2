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
	// checkTime: a claim states a time before 1970 or after the year 9999.
	checkTime Check = "claims-time"
)

// The checks of a token as a whole.
const (
	// checkToken: not a token in compact form, or a header that is refused; the cause
	// comes from package jws.
	checkToken Check = "token"
	// checkTokenType: "typ" is something other than "JWT".
	checkTokenType Check = "token-type"
	// checkTokenID: "jti" is missing or too long.
	checkTokenID Check = "token-id"
	// CheckNoKey: there is no key for the token's key ID.
	CheckNoKey Check = "no-key"
	// CheckSignature: no key made the signature.
	CheckSignature Check = "token-signature"
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
	// checkLifetime: a time is missing, or the token lives too long or not at all.
	checkLifetime Check = "lifetime"
	// checkStale: "warnafter" has passed.
	checkStale Check = "stale"
	// checkPrivate: a private claim is missing, unknown or not a valid name, or the token has
	// the private claims of a legacy token.
	checkPrivate Check = "private-claims"
	// checkSubject: "sub" does not match the service account in the private claims.
	checkSubject Check = "subject"
	// checkBinding: the token is bound to more than one object, or the attestations
	// for a webhook configuration differ from kube-apiserver's.
	checkBinding Check = "binding"
	// checkUnbound: the token is bound to no pod, node, Secret or webhook configuration.
	checkUnbound Check = "unbound-token"
)

// The checks of the objects that a token names. Each resource (service-account, secret, pod, node,
// validating-webhook-configuration, mutating-webhook-configuration) has three: that the object
// exists ("secret-gone"), that it was not deleted and recreated ("secret-uid"), and that it is not
// being deleted ("secret-deleted").
const (
	// CheckServiceAccountUID: the service account was deleted and recreated.
	CheckServiceAccountUID Check = "service-account-uid"
	// CheckServiceAccountDeleted: the service account is being deleted.
	CheckServiceAccountDeleted Check = "service-account-deleted"
	// checkPodGone: the pod does not exist.
	checkPodGone Check = "pod-gone"
	// checkPodNode: the pod is on a different node from the one in the token.
	checkPodNode Check = "pod-node"
	// checkPodServiceAccount: the pod's service account is not the token's.
	checkPodServiceAccount Check = "pod-service-account"
)

// ErrNotFound means that an object does not exist. An implementation of [Objects] returns
// an error that wraps it, preferably one made by [NewNotFound].
var ErrNotFound = alive.ErrNotFound

// Error is a check that failed; see [refusal.Error]. It holds no token and no key.
type Error = refusal.Error

// retry returns the error for something that could not be obtained.
func retry(what string, err error) error {
	return refusal.Retry(fmt.Errorf("%s: %w", what, cmp.Or(err, alive.ErrNoAnswer)))
}
