package apiserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// The checks of a legacy token, one that is kept in a Secret and never expires.
const (
	// checkLegacyClaims: a claim is missing, or "sub" does not match the service account.
	checkLegacyClaims Check = "legacy-claims"
	// checkLegacyToken: the Secret holds another token.
	checkLegacyToken Check = "legacy-token"
	// checkLegacyInvalid: the Secret was marked as invalid.
	checkLegacyInvalid Check = "legacy-invalid"
)

// labelInvalidSince is the label of a Secret that says since when its token has been invalid.
const labelInvalidSince = "kubernetes.io/legacy-token-invalid-since"

// LegacyObjects gets the Secret that a legacy token is compared with. Errors are as for
// [claims.Objects]. One that reads from the API server for each answer has the method
// ReadsLive of [claims.LiveObjects]; the answers of any other must state AsOf.
type LegacyObjects interface {
	// TokenSecret gets a Secret of type kubernetes.io/service-account-token.
	TokenSecret(ctx context.Context, namespace, name string) (*TokenSecret, error)
}

// liveLegacy reports whether an answer without AsOf is of this very moment.
func liveLegacy(objects LegacyObjects) bool {
	_, live := objects.(interface{ ReadsLive() })
	return live
}

// TokenSecret is a Secret that holds a legacy token. It keeps only the token's digest, so
// it is safe to print.
type TokenSecret struct {
	claims.Object
	// InvalidSince is the label kubernetes.io/legacy-token-invalid-since; "" if there is none.
	InvalidSince string

	digest [sha256.Size]byte
}

// NewTokenSecret makes a TokenSecret from a Secret's metadata, its data member "token" and
// its labels. It does not retain token or labels.
func NewTokenSecret(object claims.Object, token []byte, labels map[string]string) *TokenSecret {
	return &TokenSecret{Object: object, InvalidSince: labels[labelInvalidSince], digest: sha256.Sum256(token)}
}

func (s *TokenSecret) holds(token string) bool {
	digest := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(s.digest[:], digest[:]) == 1
}

// checkLegacy compares a legacy token with its Secret and service account
// (pkg/serviceaccount/legacy.go, legacyValidator.Validate, with lookup). It checks no
// times: such tokens have none.
func (v *Validator) checkLegacy(ctx context.Context, token string, c *claims.Claims) *ReviewError {
	l := c.Legacy
	if l == nil {
		l = &claims.LegacyPrivate{}
	}
	if err := legacyClaims(c.Subject, l); err != nil {
		return err
	}
	secret, err := v.config.Legacy.TokenSecret(ctx, l.Namespace, l.SecretName)
	var object *claims.Object
	if secret != nil {
		object = &claims.Object{Deleted: secret.Deleted, AsOf: secret.AsOf} // the claims have no UID of the Secret
	}
	if err := checkAlive(alive.Secret, claims.Ref{Name: l.SecretName}, v.legacyAnswer(object, err), time.Time{}); err != nil {
		return refuse("Token has been invalidated", err)
	}
	if !secret.holds(token) {
		return refuse("Token does not match server's copy",
			&Error{Check: checkLegacyToken, Got: "another token", Want: "that of secret " + refusal.Text(l.SecretName)})
	}
	if err := legacyAccount(l, answerOf(v.objects.ServiceAccount(ctx, l.Namespace, l.ServiceAccountName))); err != nil {
		return err
	}
	if secret.InvalidSince == "" {
		return nil
	}
	return refuse(fmt.Sprintf("the token in secret %s/%s for service account %s/%s has been marked invalid. "+
		"Use tokens from the TokenRequest API or manually created secret-based tokens, "+
		"or remove the '%s' label from the secret to temporarily allow use of this token",
		l.Namespace, l.SecretName, l.Namespace, l.ServiceAccountName, labelInvalidSince),
		&Error{Check: checkLegacyInvalid, Got: "invalid since " + refusal.Text(secret.InvalidSince), Want: "no label " + labelInvalidSince})
}

// legacyAnswer makes an answer, with an error if the object is too old.
func (v *Validator) legacyAnswer(object *claims.Object, err error) alive.Answer {
	switch {
	case err != nil || object == nil:
	case object.AsOf.IsZero() && !liveLegacy(v.config.Legacy):
		err = &Error{Check: claims.CheckStaleAnswer, Got: "an answer without its age", Want: "AsOf, or a getter that reads live", Err: refusal.ErrRetry}
	default:
		err = object.CheckAge(v.config.MaxStaleness, v.config.Now())
	}
	return answerOf(object, err)
}

func legacyClaims(subject string, l *claims.LegacyPrivate) *ReviewError {
	for _, claim := range [...]struct{ value, name string }{
		{subject, "sub"}, {l.Namespace, "namespace"}, {l.SecretName, "secretName"},
		{l.ServiceAccountName, "serviceAccountName"}, {l.ServiceAccountUID, "serviceAccountUID"},
	} {
		if claim.value == "" {
			return refuse(claim.name+" claim is missing", &Error{Check: checkLegacyClaims, Got: "no claim " + claim.name, Want: "one"})
		}
	}
	want := claims.MakeSubject(l.Namespace, l.ServiceAccountName)
	if subject != want || !nodename.ValidLabel(l.Namespace) || !nodename.Valid(l.ServiceAccountName) {
		return refuse("sub claim is invalid", &Error{Check: checkLegacyClaims, Got: "subject " + refusal.Text(subject), Want: refusal.Text(want)})
	}
	return nil
}

// legacyAccount checks the deletion before the UID, and allows no grace period, unlike
// the checks for bound tokens.
func legacyAccount(l *claims.LegacyPrivate, answer alive.Answer) *ReviewError {
	claim := claims.Ref{Name: l.ServiceAccountName, UID: l.ServiceAccountUID}
	if answer.Deleted != nil {
		claim.UID = answer.UID // whatever it is, only the deletion counts
	}
	reason := checkAlive(alive.ServiceAccount, claim, answer, time.Time{})
	switch {
	case reason == nil:
		return nil
	case errors.Is(reason, claims.CheckServiceAccountDeleted):
		return refuse(fmt.Sprintf("ServiceAccount %s/%s has been deleted", l.Namespace, l.ServiceAccountName), reason)
	case errors.Is(reason, claims.CheckServiceAccountUID):
		return refuse(fmt.Sprintf("ServiceAccount UID (%s) does not match claim (%s)", answer.UID, l.ServiceAccountUID), reason)
	}
	return refuse(answer.Err.Error(), reason)
}
