package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

// ValidatorConfig configures a [Validator], as the flags of kube-apiserver do. Every field is
// required unless its comment allows nil or 0.
type ValidatorConfig struct {
	// Release is the kube-apiserver; 0 is Kubernetes137.
	Release Release
	// Issuers are all the values of --service-account-issuer.
	Issuers []string
	// Keys are the keys of these issuers.
	Keys jws.KeySet
	// Objects gets the objects that tokens name.
	Objects claims.Objects
	// Audiences are the API server's, --api-audiences: they are used if the caller
	// asks for none, and as the audiences of a token that has none.
	Audiences []string
	// MaxStaleness is how old an answer of Objects may be; 0 refuses any but
	// [claims.LiveObjects]. An older answer is refused ("stale-answer",
	// [refusal.ErrRetry]).
	MaxStaleness time.Duration
	// Now is the clock; it may be nil for time.Now.
	Now func() time.Time
}

// Validator decides as kube-apiserver does (pkg/serviceaccount/jwt.go and
// claims.go in k8s.io/kubernetes): the same verdict and the same message,
// plus a [refusal.Check]. It records no audit annotations. It accepts tokens that
// [claims.Validator] refuses for good reasons. It is safe for concurrent use.
//
// It decides on bound tokens. Legacy tokens, which are kept in a Secret and which kube-apiserver
// accepts too, are "not-ours".
//
// It refuses more of the tokens that no API server signs: claims of more than
// [claims.MaxClaimsSize] and tokens of more than [jws.MaxTokenSize]; an algorithm other than the
// key's, even one that an RSA key could make (RS512, PS256); headers with "crit", "b64" or
// "jwk", with a "kid" or "typ" that is no text, with members that differ only in case, nested
// deeper than 32, or in bad UTF-8. It never accepts more. Messages about a claim set that cannot
// be decoded are worded differently.
type Validator struct {
	config  ValidatorConfig
	objects claims.FreshObjects
}

// NewValidator checks the configuration; an error has [refusal.CheckConfig].
func NewValidator(config ValidatorConfig) (*Validator, error) {
	switch {
	case config.Release > Kubernetes136:
		return nil, refusal.Config("Release", strconv.Itoa(int(config.Release)), "a release of this package")
	case len(config.Issuers) == 0 || slices.Contains(config.Issuers, ""):
		return nil, refusal.Config("Issuers", "without one, or with an empty one", "at least one, none empty")
	case config.Keys == nil:
		return nil, refusal.Config("Keys", "", "a key set")
	case foreignIssuer(config.Keys, config.Issuers) != "":
		return nil, refusal.Config("Keys", "of issuer "+foreignIssuer(config.Keys, config.Issuers), refusal.Quotes(config.Issuers))
	case len(config.Audiences) == 0 || slices.Contains(config.Audiences, ""):
		return nil, refusal.Config("Audiences", "without one, or with an empty one", "at least one, none empty")
	}
	config.Now = wallclock.Or(config.Now)
	fresh := claims.FreshObjects{From: config.Objects, MaxStaleness: config.MaxStaleness, Now: config.Now}
	if err := fresh.Check(); err != nil {
		return nil, err
	}
	config.Issuers = slices.Clone(config.Issuers)
	config.Audiences = slices.Clone(config.Audiences)
	return &Validator{config: config, objects: fresh}, nil
}

// foreignIssuer returns the issuer that keys are fetched for if it is not among issuers, or else
// "".
func foreignIssuer(keys jws.KeySet, issuers []string) string {
	if of, ok := keys.(interface{ Issuer() string }); ok && !slices.Contains(issuers, of.Issuer()) {
		return of.Issuer()
	}
	return ""
}

// Validate decides on a token as kube-apiserver does on a bearer token and on the spec of a
// TokenReview: the token is accepted if it is for one of the audiences or, if none are
// given, for one of the API server's. A refusal is a [*ReviewError]. If the reason is that
// the key set or a getter did not answer, it wraps [refusal.ErrRetry].
//
// The order of checks is: "iss", before anything is verified (that of another issuer gives
// "not-ours"); a key for the key ID; signature; audiences; "nbf", "exp" and "iat",
// each with 60 seconds of leeway, inclusive, and each optional; then the service account,
// the Secret, the pod and, only where there is no pod, the Node. An object counts as
// deleted 60 seconds after its deletionTimestamp.
func (v *Validator) Validate(ctx context.Context, token string, audiences ...string) (*claims.Result, error) {
	if v == nil || v.config.Keys == nil {
		reason := &refusal.Error{Check: refusal.CheckConfig, Got: "a Validator that NewValidator did not make", Want: "one that it made"}
		return nil, refuse(reason.Error(), reason)
	}
	t := readUntrusted(token, v.config.Release)
	if !v.ours(t.issuer) { // "", from a token that cannot be read, is not ours either
		return nil, refuse("invalid bearer token", &refusal.Error{Check: checkNotOurs, Got: "a token of issuer " + refusal.OrNothing(refusal.Text(t.issuer)), Want: "one of the configured issuers", Err: t.err})
	}
	if len(audiences) == 0 {
		audiences = v.config.Audiences
	}
	return v.authenticate(ctx, t, audiences)
}

// ours reports whether the issuer is a configured one, which "" never is.
func (v *Validator) ours(issuer string) bool { return slices.Contains(v.config.Issuers, issuer) }

// refuse returns a [*ReviewError].
func refuse(message string, reason error) error {
	own, ok := errors.AsType[*refusal.Error](reason)
	if !ok {
		own = &refusal.Error{Check: refusal.ErrRetry, Err: reason}
	}
	return &ReviewError{Message: message, Reason: own}
}

// authenticate runs the API server's authenticator for bound tokens.
func (v *Validator) authenticate(ctx context.Context, t *untrusted, audiences []string) (*claims.Result, error) {
	key, err := v.verify(ctx, t)
	if err != nil {
		return nil, err
	}
	c := t.claims
	if !v.ours(c.Issuer) {
		return nil, refuse(fmt.Sprintf("token issuer %q is invalid", c.Issuer),
			&refusal.Error{Check: claims.CheckIssuer, Got: refusal.OrNothing(refusal.Text(c.Issuer)), Want: "one of the configured issuers"})
	}
	of := c.Audiences
	if len(of) == 0 {
		of = v.config.Audiences
	}
	both := slices.DeleteFunc(slices.Clone(audiences), func(wanted string) bool { return !slices.Contains(of, wanted) })
	if len(both) == 0 {
		return nil, refuse(fmt.Sprintf("token audiences %q is invalid for the target audiences %q", of, audiences),
			&refusal.Error{Check: claims.CheckAudience, Got: refusal.Text(fmt.Sprintf("%q", of)), Want: refusal.Text(fmt.Sprintf("%q", audiences))})
	}
	now := v.config.Now()
	if err := checkTimes(c, now); err != nil {
		return nil, err
	}
	if err := v.checkObjects(ctx, &c.Kubernetes, now.Add(-leeway)); err != nil {
		return nil, err
	}
	return claims.InsecureResult(claims.Result{Claims: c, Audiences: both, Key: key}), nil
}

// verify tries the keys for the token's key ID, or all keys if it names none.
func (v *Validator) verify(ctx context.Context, t *untrusted) (*jws.Key, error) {
	keys, err := v.config.Keys.Keys(ctx, t.keyID)
	if err != nil {
		keys, err = nil, refusal.Retry(fmt.Errorf("the key set: %w", err))
	}
	if len(keys) == 0 {
		return nil, refuse("invalid signature, no keys found",
			&refusal.Error{Check: claims.CheckNoKey, Got: "key ID " + refusal.OrNothing(refusal.Text(t.keyID)), Want: "one of the key set", Err: err})
	}
	reason := &refusal.Error{Check: claims.CheckSignature, Got: "no signature of a known key", Want: "one", Err: t.err}
	for _, key := range keys {
		if t.parsed == nil {
			continue
		}
		if err := key.Verify(t.parsed); err != nil {
			reason.Err = err
			continue
		}
		if t.claimsErr != nil {
			return nil, refuse(t.claimsErr.Error(), &refusal.Error{Check: claims.CheckEncoding, Err: t.claimsErr})
		}
		return key, nil
	}
	return nil, refuse("go-jose/go-jose: error in cryptographic primitive", reason) // the same for every key and every fault
}

// ReviewError is a refusal by a [Validator], in the words of kube-apiserver 1.36.
type ReviewError struct {
	// Message is the text of kube-apiserver, as in the status.error of a TokenReview; it
	// is the whole text of this error. It may contain names and UIDs of objects, but no
	// token. If it comes from the object getter it is the getter's text, which equals the
	// API server's if the getter uses the same words; see [claims.NewNotFound].
	Message string
	// Reason is the check that failed, with both values. It is never nil in an error from
	// this package.
	Reason *refusal.Error
}

// Error returns the message of kube-apiserver.
func (e *ReviewError) Error() string { return e.Message }

// Unwrap lets errors.Is find the check, or [refusal.ErrRetry] if no answer could be had, and
// errors.As find the cause.
func (e *ReviewError) Unwrap() error {
	if e == nil || e.Reason == nil {
		return nil
	}
	return e.Reason
}

// leeway is how far clocks may be apart (go-jose v2, jwt.DefaultLeeway), and how long after
// its deletionTimestamp an object still counts.
const leeway = time.Minute

// invalidated is the API server's message for a token whose object is gone.
const invalidated = "service account token has been invalidated"

// checkTimes compares the claims of a bound token with the clock
// (pkg/serviceaccount/claims.go, validator.Validate).
func checkTimes(c *claims.Claims, now time.Time) error {
	early, late := now.Add(leeway), now.Add(-leeway)
	outside := func(message string, check refusal.Check, got claims.NumericDate, relation string, want time.Time) error {
		return refuse(message, &refusal.Error{Check: check, Got: got.Time().Format(time.RFC3339), Want: relation + " " + want.UTC().Format(time.RFC3339)})
	}
	switch {
	case c.NotBefore.Present && early.Before(c.NotBefore.Time()):
		return outside("service account token is not valid yet", claims.CheckNotBefore, c.NotBefore, "at most", early)
	case c.Expiry.Present && late.After(c.Expiry.Time()):
		return outside("service account token has expired", claims.CheckExpired, c.Expiry, "at least", late)
	case c.IssuedAt.Present && early.Before(c.IssuedAt.Time()):
		return outside("service account token is issued in the future", claims.CheckIssuedAt, c.IssuedAt, "at most", early)
	}
	return nil
}

// checkObjects compares the objects that the token names with the existing ones. A pod's
// Node is not checked.
func (v *Validator) checkObjects(ctx context.Context, k *claims.Private, deletedBefore time.Time) error {
	for _, named := range [...]struct {
		resource alive.Resource
		claim    *claims.Ref
	}{{alive.ServiceAccount, &k.ServiceAccount}, {alive.Secret, k.Secret}, {alive.Pod, k.Pod}, {alive.Node, k.Node},
		{alive.ValidatingWebhookConfiguration, k.ValidatingWebhookConfiguration}, {alive.MutatingWebhookConfiguration, k.MutatingWebhookConfiguration}} {
		switch {
		case named.claim == nil || named.resource == alive.Node && k.Pod != nil:
			continue
		case named.claim == k.ValidatingWebhookConfiguration || named.claim == k.MutatingWebhookConfiguration:
			if err := v.checkWebhook(k); err != nil {
				return err
			}
		}
		answer := v.get(ctx, named.resource, k.Namespace, named.claim.Name)
		if err := checkAlive(named.resource, *named.claim, answer, deletedBefore); err != nil {
			return refuse(message(named.resource, k.Namespace, *named.claim, answer, err), err)
		}
	}
	return nil
}

// get gets an object of a resource.
func (v *Validator) get(ctx context.Context, resource alive.Resource, namespace, name string) alive.Answer {
	if name == "" {
		return alive.Answer{Err: emptyNameError{}}
	}
	object, err := v.objects.Get(ctx, resource.Plural, resource.Namespace(namespace), name)
	if object == nil {
		return alive.Answer{Err: cmp.Or(err, alive.ErrNoAnswer)}
	}
	return alive.Answer{Found: true, UID: object.UID, Deleted: object.Deleted}
}

// emptyNameError is the message of the API server's client for an empty name. No request is
// made for one.
type emptyNameError struct{}

func (emptyNameError) Error() string { return "resource name may not be empty" }
func (emptyNameError) Unwrap() error { return claims.ErrNotFound }

// checkAlive compares an answer with the object that the token names. As in kube-apiserver, an
// object that could not be read counts as gone; refusal.ErrRetry in the chain distinguishes the
// two.
func checkAlive(resource alive.Resource, claim claims.Ref, a alive.Answer, deletedBefore time.Time) error {
	err := resource.Compare(claim.Name, claim.UID, a, deletedBefore)
	if errors.Is(err, refusal.ErrRetry) {
		return &refusal.Error{Check: resource.Check("gone"), Got: "no answer", Want: resource.Name + " " + refusal.Text(claim.Name), Err: err}
	}
	return err
}

// message returns the API server's message when a check of an object fails. If it cannot get
// a service account, that is the getter's own error.
func message(resource alive.Resource, namespace string, claim claims.Ref, a alive.Answer, err error) string {
	switch {
	case errors.Is(err, claims.CheckServiceAccountUID):
		return fmt.Sprintf("service account UID (%s) does not match claim (%s)", a.UID, claim.UID)
	case errors.Is(err, claims.CheckServiceAccountDeleted):
		return fmt.Sprintf("service account %s/%s has been deleted", namespace, claim.Name)
	case resource == alive.ServiceAccount:
		return a.Err.Error()
	case errors.Is(err, resource.Check("uid")) && resource == alive.ValidatingWebhookConfiguration:
		return fmt.Sprintf("ValidatingWebhookConfiguration UID (%s) does not match service account validating ref claim (%s)", a.UID, claim.UID)
	case errors.Is(err, resource.Check("uid")) && resource == alive.MutatingWebhookConfiguration: // Kubernetes says "validating" here too
		return fmt.Sprintf("MutatingWebhookConfiguration UID (%s) does not match service account validating ref claim (%s)", a.UID, claim.UID)
	case errors.Is(err, resource.Check("uid")):
		return fmt.Sprintf("%s UID (%s) does not match service account %s ref claim (%s)", resource.Name, a.UID, resource.Name, claim.UID)
	}
	return invalidated
}
