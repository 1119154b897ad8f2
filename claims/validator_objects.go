package claims

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/refusal"
)

// The kinds of objects that a token may name, after which their checks are named.
const (
	accountKind alive.Kind = "service account"
	secretKind  alive.Kind = "secret"
	podKind     alive.Kind = "pod"
	nodeKind    alive.Kind = "node"
)

// checkObjects compares the objects that the token names with those that exist, and the
// pod with the token. It returns the Node, nil where the token names none.
func (v *Validator) checkObjects(ctx context.Context, k *Private, deletedBefore time.Time) (*Node, error) {
	account, err := v.objects.ServiceAccount(ctx, k.Namespace, k.ServiceAccount.Name)
	if err := checkAlive(accountKind, k.ServiceAccount, account, err, deletedBefore); err != nil {
		return nil, err
	}
	if k.Secret != nil {
		secret, err := v.objects.Secret(ctx, k.Namespace, k.Secret.Name)
		if err := checkAlive(secretKind, *k.Secret, secret, err, deletedBefore); err != nil {
			return nil, err
		}
	}
	if k.Pod != nil {
		pod, err := v.objects.Pod(ctx, k.Namespace, k.Pod.Name)
		if err := checkAlive(podKind, *k.Pod, pod, err, deletedBefore); err != nil {
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
	return node, checkAlive(nodeKind, *k.Node, node, err, deletedBefore)
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
