package claims

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/refusal"
)

// Review is the API server's answer to a TokenReview (authentication.k8s.io/v1) of a token that it
// authenticated: the members of status.user, and status.audiences. The zero value agrees with no
// token.
type Review struct {
	// Username is "system:serviceaccount:<namespace>:<name>" for a service account.
	Username string
	// UID is the UID of the service account.
	UID string
	// Groups are the user's groups, in any order.
	Groups []string
	// Extra holds the token's ID and its bound objects; see [Result.Extra]. kube-apiserver sets
	// "authentication.kubernetes.io/credential-id" from Kubernetes 1.32 on in every case. It does so
	// for JWTs of other issuers with a jti, too (--authentication-config), but lets none of them set
	// another key of kubernetes.io: the keys of a pod, a node or a webhook configuration tell the token
	// of a service account from any other. A token that is bound to a Secret, or to nothing, has no
	// such key: where the API server maps another issuer's users to names of service accounts, it may
	// be a token of that issuer. A webhook that authenticates tokens for the API server
	// (--authentication-token-webhook-config-file) can answer with any user and any keys.
	Extra map[string][]string
	// Audiences are the requested audiences that the token has, in any order. None means
	// that the API server knows no audiences, and that the token is for itself.
	Audiences []string
}

// CheckReview: the API server does not authenticate the token. [ValidatorConfig].Review returns an
// error that wraps it.
const CheckReview Check = "token-review"

// The ways in which a token's claims and its [Review] can disagree. A key of the user's extra that
// kube-apiserver sets for service accounts has a check of its own, such as "review-node-uid" for
// "authentication.kubernetes.io/node-uid"; any other key has checkReviewExtra.
const (
	// checkReviewUser: the user is not the token's service account.
	checkReviewUser Check = "review-user"
	// checkReviewUID: the service account's UID is not the token's.
	checkReviewUID Check = "review-uid"
	// checkReviewGroups: the user has other groups than the token's service account.
	checkReviewGroups Check = "review-groups"
	// checkReviewAudiences: the token has other audiences than the review accepted.
	checkReviewAudiences Check = "review-audiences"
	// checkReviewExtra: the user's extra has a key that no token gives, or other API groups of a
	// webhook configuration.
	checkReviewExtra Check = "review-extra"
)

// groupAuthenticated is added by kube-apiserver to the groups of every user.
const groupAuthenticated = "system:authenticated"

// checkReview has the API server review the token, and compares the claims with its answer.
func (v *Validator) checkReview(ctx context.Context, token string, r *Result) error {
	if slices.Contains(r.Audiences, r.Claims.Issuer) && !v.config.InsecureAPIServerAudience {
		return &Error{Check: CheckAudience, Got: "the API server's, " + refusal.Text(r.Claims.Issuer),
			Want: "the validating service's own in Audiences, or InsecureAPIServerAudience"}
	}
	review, err := v.config.Review(ctx, token, slices.Clone(v.config.Audiences))
	switch {
	case errors.Is(err, CheckReview) && !errors.Is(err, refusal.ErrRetry):
		return &Error{Check: CheckReview, Got: "a token that the API server does not authenticate", Want: "one that it does", Err: err}
	case err != nil || review == nil:
		return retry("TokenReview", err)
	}
	return review.compare(r)
}

// compare compares each value that the review states with that of the token.
func (review *Review) compare(r *Result) error {
	groups := append(r.Groups(), groupAuthenticated)
	switch {
	case review.Username != r.Username():
		return reviewError(checkReviewUser, "user ", []string{review.Username}, []string{r.Username()})
	case review.UID != r.UID():
		return reviewError(checkReviewUID, "UID ", []string{review.UID}, []string{r.UID()})
	case !sameSet(append(slices.Clone(review.Groups), groupAuthenticated), groups):
		return reviewError(checkReviewGroups, "groups ", review.Groups, groups)
	case !sameSet(review.Audiences, r.Audiences):
		return reviewError(checkReviewAudiences, "audiences ", review.Audiences, r.Audiences)
	}
	want := r.Extra()
	all := maps.Clone(want)
	maps.Copy(all, review.Extra)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !slices.Equal(review.Extra[key], want[key]) {
			return reviewError(checkOfExtra(key), key+" ", review.Extra[key], want[key])
		}
	}
	return nil
}

// checkOfExtra returns the check of a key of the user's extra.
func checkOfExtra(key string) Check {
	name, ok := strings.CutPrefix(key, extraPrefix)
	of := func(r alive.Resource) bool {
		singular := strings.TrimSuffix(r.Plural, "s")
		return name == singular+"-name" || name == singular+"-uid"
	}
	if ok && (name == "credential-id" || of(alive.Pod) || of(alive.Node) || of(alive.ValidatingWebhookConfiguration) || of(alive.MutatingWebhookConfiguration)) {
		return Check("review-" + name)
	}
	return checkReviewExtra
}

func reviewError(check Check, what string, got, want []string) error {
	quoted := func(values []string) string { return refusal.OrNothing(refusal.Quotes(values)) }
	e := &Error{Check: check, Got: "a review with " + what + quoted(got), Want: quoted(want)}
	if check == "review-credential-id" && len(got) == 0 {
		e.Want += ", which kube-apiserver gives from Kubernetes 1.32 on for each token of a service account"
	}
	return e
}

// sameSet reports whether both have the same values, in any order.
func sameSet(a, b []string) bool {
	sorted := func(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }
	return slices.Equal(sorted(a), sorted(b))
}
