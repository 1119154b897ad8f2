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
		v.c.Recorder.Annotate(ctx, "authentication.k8s.io/stale-token",
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
	for _, named := range [...]struct {
		kind  alive.Kind
		claim *claims.Ref
	}{{alive.ServiceAccount, &k.ServiceAccount}, {alive.Secret, k.Secret}, {alive.Pod, k.Pod}, {alive.Node, k.Node}} {
		if named.claim == nil || named.kind == alive.Node && k.Pod != nil {
			continue
		}
		answer := answerOf(v.get(ctx, named.kind, k.Namespace, named.claim.Name))
		if err := checkAlive(named.kind, *named.claim, answer, deletedBefore); err != nil {
			return refuse(message(named.kind, k.Namespace, *named.claim, answer, err.Check), err)
		}
	}
	return nil
}

// get asks for an object of a kind.
func (v *Validator) get(ctx context.Context, kind alive.Kind, namespace, name string) (*claims.Object, error) {
	switch {
	case name == "":
		return nil, emptyNameError{}
	case kind == alive.ServiceAccount:
		return v.c.Objects.ServiceAccount(ctx, namespace, name)
	case kind == alive.Secret:
		return v.c.Objects.Secret(ctx, namespace, name)
	case kind == alive.Pod:
		pod, err := v.c.Objects.Pod(ctx, namespace, name)
		if pod == nil {
			return nil, err
		}
		return &pod.Object, err
	}
	node, err := v.c.Objects.Node(ctx, name)
	if node == nil {
		return nil, err
	}
	return &node.Object, err
}

// emptyNameError is what the API server's client says of a name that is empty. Nothing
// is asked for one.
type emptyNameError struct{}

func (emptyNameError) Error() string { return "resource name may not be empty" }
func (emptyNameError) Unwrap() error { return claims.ErrNotFound }

func answerOf(object *claims.Object, err error) alive.Answer {
	if object == nil && err == nil {
		err = alive.ErrNoAnswer
	}
	if err != nil {
		return alive.Answer{Err: err}
	}
	return alive.Answer{Found: true, UID: object.UID, Deleted: object.Deleted}
}

// checkAlive compares an answer with what the token names. As for kube-apiserver, an object
// that could not be read is gone; ErrRetry in the chain tells it from one that is.
func checkAlive(kind alive.Kind, claim claims.Ref, a alive.Answer, deletedBefore time.Time) *Error {
	err := kind.Compare(alive.Claim(claim), a, deletedBefore)
	if err != nil && errors.Is(err, ErrRetry) {
		return &Error{Check: kind.Check("gone"), Got: err.Got, Want: err.Want, Err: &Error{Check: ErrRetry, Err: err.Err}}
	}
	return err
}

// message is what the API server says where a check of an object fails; where it cannot get
// a service account that is the getter's own error.
func message(kind alive.Kind, namespace string, claim claims.Ref, a alive.Answer, check Check) string {
	switch {
	case check == claims.CheckServiceAccountUID:
		return fmt.Sprintf("service account UID (%s) does not match claim (%s)", a.UID, claim.UID)
	case check == claims.CheckServiceAccountDeleted:
		return fmt.Sprintf("service account %s/%s has been deleted", namespace, claim.Name)
	case kind == alive.ServiceAccount:
		return a.Err.Error()
	case check == kind.Check("uid"):
		return fmt.Sprintf("%s UID (%s) does not match service account %s ref claim (%s)", kind, a.UID, kind, claim.UID)
	}
	return invalidated
}
