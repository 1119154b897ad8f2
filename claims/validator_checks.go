package claims

import (
	"context"
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/refusal"
)

// MaxTokenIDSize is the length in bytes of the longest "jti" that strict validation takes.
// kube-apiserver writes 36.
const MaxTokenIDSize = 256

// checkConsistent compares the claims with each other.
func checkConsistent(c *Claims) error {
	k := &c.Kubernetes
	switch {
	case c.Legacy != nil:
		return &Error{Check: CheckPrivate, Got: "claims of a legacy token", Want: "none"}
	case !nodename.ValidLabel(k.Namespace):
		return &Error{Check: CheckPrivate, Got: "namespace " + refusal.OrNothing(refusal.Text(k.Namespace)), Want: "a DNS label"}
	}
	for _, bound := range [...]struct {
		kind alive.Kind
		ref  *Ref
	}{{alive.ServiceAccount, &k.ServiceAccount}, {alive.Pod, k.Pod}, {alive.Secret, k.Secret}, {alive.Node, k.Node}} {
		switch {
		case bound.ref == nil:
		case !nodename.Valid(bound.ref.Name):
			return &Error{Check: CheckPrivate, Got: string(bound.kind) + " " + refusal.OrNothing(refusal.Text(bound.ref.Name)), Want: "a DNS subdomain"}
		case bound.ref.UID == "":
			return &Error{Check: CheckPrivate, Got: "a " + string(bound.kind) + " without UID", Want: "a UID"}
		}
	}
	switch want := MakeSubject(k.Namespace, k.ServiceAccount.Name); {
	case k.Secret != nil && (k.Pod != nil || k.Node != nil):
		return &Error{Check: CheckBinding, Got: "a Secret and a pod or node", Want: "one of them"}
	case c.ID == "" || len(c.ID) > MaxTokenIDSize:
		return &Error{Check: CheckTokenID, Got: strconv.Itoa(len(c.ID)) + " bytes", Want: "1 to " + strconv.Itoa(MaxTokenIDSize)}
	case c.Subject != want:
		return &Error{Check: CheckSubject, Got: refusal.OrNothing(refusal.Text(c.Subject)), Want: want}
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
func (v *Validator) checkTimes(c *Claims, now time.Time) error {
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

func timeError(check Check, got NumericDate, relation string, want time.Time) error {
	return &Error{Check: check, Got: got.Time().Format(time.RFC3339), Want: relation + " " + want.UTC().Format(time.RFC3339)}
}

// checkObjects compares the objects that the token names with those that exist, and the
// pod with the token. It returns the Node, nil where the token names none.
func (v *Validator) checkObjects(ctx context.Context, k *Private, deletedBefore time.Time) (*Node, error) {
	account, err := v.objects.ServiceAccount(ctx, k.Namespace, k.ServiceAccount.Name)
	if err := checkAlive(alive.ServiceAccount, k.ServiceAccount, account, err, deletedBefore); err != nil {
		return nil, err
	}
	if k.Secret != nil {
		secret, err := v.objects.Secret(ctx, k.Namespace, k.Secret.Name)
		if err := checkAlive(alive.Secret, *k.Secret, secret, err, deletedBefore); err != nil {
			return nil, err
		}
	}
	if k.Pod != nil {
		pod, err := v.objects.Pod(ctx, k.Namespace, k.Pod.Name)
		if err := checkAlive(alive.Pod, *k.Pod, pod, err, deletedBefore); err != nil {
			return nil, err
		}
		if err := checkPod(pod, k); err != nil {
			return nil, err
		}
	}
	if k.Node == nil {
		return nil, nil
	}
	node, err := v.objects.Node(ctx, k.Node.Name)
	return node, checkAlive(alive.Node, *k.Node, node, err, deletedBefore)
}

// checkAlive compares what a getter answered with what the token names.
func checkAlive[T any, P holder[T]](kind alive.Kind, claim Ref, answer P, err error, deletedBefore time.Time) error {
	a := alive.Answer{Found: answer != nil, Err: err}
	if a.Found {
		a.UID, a.Deleted = answer.object().UID, answer.object().Deleted
	}
	if refused := kind.Compare(alive.Claim(claim), a, deletedBefore); refused != nil {
		return refused
	}
	return nil
}

// checkPod compares a pod with the token's service account and node.
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
