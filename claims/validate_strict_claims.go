package claims

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// MaxTokenIDSize is the length in bytes of the longest "jti" that strict validation takes.
// kube-apiserver writes 36.
const MaxTokenIDSize = 256

// The checks that only a [StrictValidator] makes.
const (
	// CheckToken: no token in compact form, or a header that is refused; the cause is
	// package jws's.
	CheckToken Check = "token"
	// CheckTokenType: "typ" is another than "JWT".
	CheckTokenType Check = "token-type"
	// CheckTokenID: "jti" is missing or too long.
	CheckTokenID Check = "token-id"
	// CheckLifetime: a time is missing, or the token lives too long or not at all.
	CheckLifetime Check = "lifetime"
	// CheckStale: "warnafter" has passed.
	CheckStale Check = "stale"
	// CheckPrivate: a private claim is missing or is no name, or there are those of a
	// legacy token.
	CheckPrivate Check = "private-claims"
	// CheckSubject: "sub" is not that of the service account in the private claims.
	CheckSubject Check = "subject"
	// CheckBinding: the token is bound to a Secret and to something else.
	CheckBinding Check = "binding"
	// CheckPodNode: the pod is on another node than the token's.
	CheckPodNode Check = "pod-node"
	// CheckPodServiceAccount: the pod's service account is not the token's.
	CheckPodServiceAccount Check = "pod-service-account"
)

// checkConsistent holds the claims against each other.
func checkConsistent(c *Claims) error {
	k := &c.Kubernetes
	switch {
	case c.Legacy != nil:
		return &Error{Check: CheckPrivate, Got: "claims of a legacy token", Want: "none"}
	case !validNamespace(k.Namespace):
		return &Error{Check: CheckPrivate, Got: "namespace " + refusal.OrNothing(refusal.Text(k.Namespace)), Want: "a DNS label"}
	case !validName(k.ServiceAccount.Name):
		return &Error{Check: CheckPrivate, Got: "service account " + refusal.OrNothing(refusal.Text(k.ServiceAccount.Name)), Want: "a DNS subdomain"}
	case k.ServiceAccount.UID == "":
		return &Error{Check: CheckPrivate, Got: "a service account without UID", Want: "a UID"}
	case k.Secret != nil && (k.Pod != nil || k.Node != nil):
		return &Error{Check: CheckBinding, Got: "a Secret and a pod or node", Want: "one of them"}
	case c.ID == "" || len(c.ID) > MaxTokenIDSize:
		return &Error{Check: CheckTokenID, Got: strconv.Itoa(len(c.ID)) + " bytes", Want: "1 to " + strconv.Itoa(MaxTokenIDSize)}
	}
	if want := MakeSubject(k.Namespace, k.ServiceAccount.Name); c.Subject != want {
		return &Error{Check: CheckSubject, Got: refusal.OrNothing(refusal.Text(c.Subject)), Want: want}
	}
	for _, bound := range [...]struct {
		kind string
		ref  *Ref
	}{{"pod", k.Pod}, {"secret", k.Secret}, {"node", k.Node}} {
		if bound.ref == nil {
			continue
		}
		if !validName(bound.ref.Name) {
			return &Error{Check: CheckPrivate, Got: bound.kind + " " + refusal.OrNothing(refusal.Text(bound.ref.Name)), Want: "a DNS subdomain"}
		}
		if bound.ref.UID == "" {
			return &Error{Check: CheckPrivate, Got: "a " + bound.kind + " without UID", Want: "a UID"}
		}
	}
	return nil
}

// endOf is when a token's life ends: at "exp", or before that at "warnafter", the end that
// was asked for where the API server granted a longer one.
func endOf(c *Claims) NumericDate {
	if warn := c.Kubernetes.WarnAfter; warn.Present && warn.Unix < c.Expiry.Unix {
		return warn
	}
	return c.Expiry
}

// checkTimes checks the times, of which all must be there.
func (v *StrictValidator) checkTimes(c *Claims, now time.Time) error {
	for _, claim := range [...]struct {
		name string
		date NumericDate
	}{{"exp", c.Expiry}, {"nbf", c.NotBefore}, {"iat", c.IssuedAt}} {
		if !claim.date.Present {
			return &Error{Check: CheckLifetime, Got: "no " + claim.name, Want: "a time"}
		}
	}
	begin, end := min(c.IssuedAt.Unix, c.NotBefore.Unix), endOf(c)
	if life := end.Unix - begin; life <= 0 || life > int64(v.c.MaxLifetime/time.Second) {
		return &Error{Check: CheckLifetime, Got: "a life of " + strconv.FormatInt(life, 10) + " seconds",
			Want: "1 to " + strconv.FormatInt(int64(v.c.MaxLifetime/time.Second), 10)}
	}
	early, late := now.Add(v.c.Leeway), now.Add(-v.c.Leeway)
	switch {
	case early.Before(c.NotBefore.Time()):
		return timeError(CheckNotBefore, c.NotBefore, "at most", early)
	case early.Before(c.IssuedAt.Time()):
		return timeError(CheckIssuedAt, c.IssuedAt, "at most", early)
	case late.After(c.Expiry.Time()):
		return timeError(CheckExpired, c.Expiry, "at least", late)
	case late.After(end.Time()):
		return timeError(CheckStale, end, "at least", late)
	}
	return nil
}

// checkObjects holds the objects that the token names against those that live, and the
// pod against the token. It returns the Node.
func (v *StrictValidator) checkObjects(ctx context.Context, k *Private, nodes Objects, deletedBefore time.Time) (*Node, error) {
	if err := strictly(holdAccount(ctx, v.c.Objects, k.Namespace, k.ServiceAccount), deletedBefore); err != nil {
		return nil, err
	}
	if k.Secret != nil {
		if err := strictly(holdSecret(ctx, v.c.Objects, k.Namespace, *k.Secret), deletedBefore); err != nil {
			return nil, err
		}
	}
	if k.Pod != nil {
		h, pod := holdPod(ctx, v.c.Objects, k.Namespace, *k.Pod)
		if err := strictly(h, deletedBefore); err != nil {
			return nil, err
		}
		if err := checkPod(pod, k); err != nil {
			return nil, err
		}
	}
	if k.Node == nil {
		return nil, nil
	}
	h, node := holdNode(ctx, nodes, *k.Node)
	if err := strictly(h, deletedBefore); err != nil {
		return nil, err
	}
	return node, nil
}

// checkPod holds a pod against the token's service account and node.
func checkPod(pod *Pod, k *Private) error {
	if pod.ServiceAccountName != k.ServiceAccount.Name {
		return &Error{Check: CheckPodServiceAccount, Got: "a pod of service account " + refusal.OrNothing(refusal.Text(pod.ServiceAccountName)), Want: k.ServiceAccount.Name}
	}
	node := ""
	if k.Node != nil {
		node = k.Node.Name
	}
	if pod.NodeName != node {
		return &Error{Check: CheckPodNode, Got: "a pod on node " + refusal.OrNothing(refusal.Text(pod.NodeName)), Want: refusal.OrNothing(refusal.Text(node))}
	}
	return nil
}

// strictly is held.check where a getter that does not answer refuses nothing.
func strictly(h held, deletedBefore time.Time) error {
	switch err := h.check(deletedBefore); {
	case err == nil:
		return nil
	case errors.Is(err, ErrRetry):
		return err.Err
	default:
		return err
	}
}
