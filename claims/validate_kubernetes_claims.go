package claims

import (
	"context"
	"fmt"
	"time"
)

// kubernetesLeeway is how far clocks may be apart (go-jose v2, jwt.DefaultLeeway), and how
// long after its deletionTimestamp an object still counts.
const kubernetesLeeway = time.Minute

// invalidated is what the API server says of a token whose object is gone.
const invalidated = "service account token has been invalidated"

// checkBound holds the claims of a bound token against clock and objects
// (pkg/serviceaccount/claims.go, validator.Validate).
func (v *KubernetesValidator) checkBound(ctx context.Context, c *Claims) *KubernetesError {
	now := v.c.Now()
	if err := checkKubernetesTimes(c, now); err != nil {
		return err
	}
	if err := v.checkObjects(ctx, &c.Kubernetes, now.Add(-kubernetesLeeway)); err != nil {
		return err
	}
	if warn := c.Kubernetes.WarnAfter; warn.Present && warn.Unix != 0 && now.After(warn.Time()) {
		v.annotate(ctx, "authentication.k8s.io/stale-token",
			fmt.Sprintf("subject: %s, seconds after warning threshold: %d", c.Subject, now.Unix()-warn.Unix))
	}
	return nil
}

func checkKubernetesTimes(c *Claims, now time.Time) *KubernetesError {
	early, late := now.Add(kubernetesLeeway), now.Add(-kubernetesLeeway)
	switch {
	case c.NotBefore.Present && early.Before(c.NotBefore.Time()):
		return refuse("service account token is not valid yet", timeError(CheckNotBefore, c.NotBefore, "at most", early))
	case c.Expiry.Present && late.After(c.Expiry.Time()):
		return refuse("service account token has expired", timeError(CheckExpired, c.Expiry, "at least", late))
	case c.IssuedAt.Present && early.Before(c.IssuedAt.Time()):
		return refuse("service account token is issued in the future", timeError(CheckIssuedAt, c.IssuedAt, "at most", early))
	}
	return nil
}

func timeError(check Check, got NumericDate, relation string, want time.Time) *Error {
	return &Error{Check: check, Got: got.Time().Format(time.RFC3339), Want: relation + " " + want.UTC().Format(time.RFC3339)}
}

// checkObjects holds the objects that the token names against those that live.
func (v *KubernetesValidator) checkObjects(ctx context.Context, k *Private, deletedBefore time.Time) *KubernetesError {
	h := holdAccount(ctx, v.c.Objects, k.Namespace, k.ServiceAccount)
	if err := h.check(deletedBefore); err != nil {
		return refuse(accountMessage(h, err, k.Namespace), err)
	}
	if k.Secret != nil {
		h := holdSecret(ctx, v.c.Objects, k.Namespace, *k.Secret)
		if err := h.check(deletedBefore); err != nil {
			return refuse(boundMessage(h, err), err)
		}
	}
	if k.Pod != nil {
		h, _ := holdPod(ctx, v.c.Objects, k.Namespace, *k.Pod)
		if err := h.check(deletedBefore); err != nil {
			return refuse(boundMessage(h, err), err)
		}
	}
	if k.Node != nil && k.Pod == nil {
		h, _ := holdNode(ctx, v.c.Objects, *k.Node)
		if err := h.check(deletedBefore); err != nil {
			return refuse(boundMessage(h, err), err)
		}
	}
	return nil
}

// accountMessage is what the API server says of a service account; where it cannot get it
// that is the getter's own error.
func accountMessage(h held, err *Error, namespace string) string {
	switch err.Check {
	case CheckServiceAccountUID:
		return fmt.Sprintf("service account UID (%s) does not match claim (%s)", h.object.UID, h.claim.UID)
	case CheckServiceAccountDeleted:
		return fmt.Sprintf("service account %s/%s has been deleted", namespace, h.claim.Name)
	}
	return h.err.Error()
}

// boundMessage is what the API server says of a Secret, pod or Node.
func boundMessage(h held, err *Error) string {
	if err.Check != h.kind.uid {
		return invalidated
	}
	return fmt.Sprintf("%s UID (%s) does not match service account %s ref claim (%s)", h.kind.name, h.object.UID, h.kind.name, h.claim.UID)
}
