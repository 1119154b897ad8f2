package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/internal/alive"
)

// leeway is how far clocks may be apart (go-jose v2, jwt.DefaultLeeway), and how long after
// its deletionTimestamp an object still counts.
const leeway = time.Minute

// invalidated is what the API server says of a token whose object is gone.
const invalidated = "service account token has been invalidated"

// The kinds of objects that a token may name. They are never changed.
var (
	accountKind = alive.Kind{Name: "service account", Gone: claims.CheckServiceAccountGone, UID: claims.CheckServiceAccountUID, Deleted: claims.CheckServiceAccountDeleted}
	secretKind  = alive.Kind{Name: "secret", Gone: claims.CheckSecretGone, UID: claims.CheckSecretUID, Deleted: claims.CheckSecretDeleted}
	podKind     = alive.Kind{Name: "pod", Gone: claims.CheckPodGone, UID: claims.CheckPodUID, Deleted: claims.CheckPodDeleted}
	nodeKind    = alive.Kind{Name: "node", Gone: claims.CheckNodeGone, UID: claims.CheckNodeUID, Deleted: claims.CheckNodeDeleted}
)

// checkTimesAndObjects compares the claims of a bound token with clock and objects
// (pkg/serviceaccount/claims.go, validator.Validate).
func (v *Validator) checkTimesAndObjects(ctx context.Context, c *claims.Claims) *ReviewError {
	now := v.c.Now()
	if err := checkTimes(c, now); err != nil {
		return err
	}
	if err := v.checkObjects(ctx, &c.Kubernetes, now.Add(-leeway)); err != nil {
		return err
	}
	// kube-apiserver does not tell a "warnafter" of 0 from none.
	if warn := c.Kubernetes.WarnAfter; warn.Present && warn.Unix != 0 && now.After(warn.Time()) {
		v.annotate(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, now.Unix()-warn.Unix))
	}
	return nil
}

func checkTimes(c *claims.Claims, now time.Time) *ReviewError {
	early, late := now.Add(leeway), now.Add(-leeway)
	outside := func(message string, check Check, got claims.NumericDate, relation string, want time.Time) *ReviewError {
		return refuse(message, &Error{Check: check, Got: got.Time().Format(time.RFC3339), Want: relation + " " + want.UTC().Format(time.RFC3339)})
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

// checkObjects compares the objects that the token names with those that exist. A pod's
// Node is not looked at.
func (v *Validator) checkObjects(ctx context.Context, k *claims.Private, deletedBefore time.Time) *ReviewError {
	account := v.account(ctx, k)
	if err := checkAlive(accountKind, k.ServiceAccount, account, deletedBefore); err != nil {
		return refuse(accountMessage(k, account, err), err)
	}
	for _, bound := range [...]struct {
		kind   alive.Kind
		claim  *claims.Ref
		answer func(*Validator, context.Context, *claims.Private) alive.Answer
	}{{secretKind, k.Secret, (*Validator).secret}, {podKind, k.Pod, (*Validator).pod}, {nodeKind, k.Node, (*Validator).node}} {
		if bound.claim == nil || bound.claim == k.Node && k.Pod != nil {
			continue
		}
		answer := bound.answer(v, ctx, k)
		if err := checkAlive(bound.kind, *bound.claim, answer, deletedBefore); err != nil {
			return refuse(boundMessage(bound.kind, *bound.claim, answer, err), err)
		}
	}
	return nil
}

func (v *Validator) account(ctx context.Context, k *claims.Private) alive.Answer {
	if k.ServiceAccount.Name == "" {
		return alive.Answer{Err: emptyNameError{}}
	}
	return answerOf(v.c.Objects.ServiceAccount(ctx, k.Namespace, k.ServiceAccount.Name))
}

func (v *Validator) secret(ctx context.Context, k *claims.Private) alive.Answer {
	if k.Secret.Name == "" {
		return alive.Answer{Err: emptyNameError{}}
	}
	return answerOf(v.c.Objects.Secret(ctx, k.Namespace, k.Secret.Name))
}

func (v *Validator) pod(ctx context.Context, k *claims.Private) alive.Answer {
	if k.Pod.Name == "" {
		return alive.Answer{Err: emptyNameError{}}
	}
	pod, err := v.c.Objects.Pod(ctx, k.Namespace, k.Pod.Name)
	if pod == nil {
		return answerOf(nil, err)
	}
	return answerOf(&pod.Object, err)
}

func (v *Validator) node(ctx context.Context, k *claims.Private) alive.Answer {
	if k.Node.Name == "" {
		return alive.Answer{Err: emptyNameError{}}
	}
	node, err := v.c.Objects.Node(ctx, k.Node.Name)
	if node == nil {
		return answerOf(nil, err)
	}
	return answerOf(&node.Object, err)
}

// emptyNameError is what the API server's client says of a name that is empty. Nothing
// is asked for one.
type emptyNameError struct{}

func (emptyNameError) Error() string { return "resource name may not be empty" }
func (emptyNameError) Unwrap() error { return claims.ErrNotFound }

func answerOf(object *claims.Object, err error) alive.Answer {
	switch {
	case err != nil:
		return alive.Answer{Err: err}
	case object == nil:
		return alive.Answer{Err: alive.ErrNoAnswer}
	}
	return alive.Answer{Found: true, UID: object.UID, Deleted: object.Deleted}
}

// checkAlive compares an answer with what the token names. As for kube-apiserver, an object
// that could not be read is gone; ErrRetry in the chain tells it from one that is.
func checkAlive(kind alive.Kind, claim claims.Ref, a alive.Answer, deletedBefore time.Time) *Error {
	err := kind.Check(alive.Claim(claim), a, deletedBefore)
	if err != nil && errors.Is(err, ErrRetry) {
		return &Error{Check: kind.Gone, Got: err.Got, Want: err.Want, Err: &Error{Check: ErrRetry, Err: err.Err}}
	}
	return err
}

// accountMessage is what the API server says of a service account; where it cannot get it
// that is the getter's own error.
func accountMessage(k *claims.Private, a alive.Answer, err *Error) string {
	switch err.Check {
	case claims.CheckServiceAccountUID:
		return fmt.Sprintf("service account UID (%s) does not match claim (%s)", a.UID, k.ServiceAccount.UID)
	case claims.CheckServiceAccountDeleted:
		return fmt.Sprintf("service account %s/%s has been deleted", k.Namespace, k.ServiceAccount.Name)
	}
	return a.Err.Error()
}

// boundMessage is what the API server says of a Secret, pod or Node.
func boundMessage(kind alive.Kind, claim claims.Ref, a alive.Answer, err *Error) string {
	if err.Check != kind.UID {
		return invalidated
	}
	return fmt.Sprintf("%s UID (%s) does not match service account %s ref claim (%s)", kind.Name, a.UID, kind.Name, claim.UID)
}
