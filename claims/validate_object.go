package claims

import (
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// The checks that hold the objects that a token names against those that live. The
// Node's are [CheckNodeGone], [CheckNodeUID] and [CheckNodeDeleted].
const (
	// CheckServiceAccountGone: the service account does not exist.
	CheckServiceAccountGone Check = "service-account-gone"
	// CheckServiceAccountUID: it was deleted and made again.
	CheckServiceAccountUID Check = "service-account-uid"
	// CheckServiceAccountDeleted: it is being deleted.
	CheckServiceAccountDeleted Check = "service-account-deleted"
	// CheckSecretGone: the Secret does not exist.
	CheckSecretGone Check = "secret-gone"
	// CheckSecretUID: it was deleted and made again.
	CheckSecretUID Check = "secret-uid"
	// CheckSecretDeleted: it is being deleted.
	CheckSecretDeleted Check = "secret-deleted"
	// CheckPodGone: the pod does not exist.
	CheckPodGone Check = "pod-gone"
	// CheckPodUID: it was deleted and made again.
	CheckPodUID Check = "pod-uid"
	// CheckPodDeleted: its time to end has passed.
	CheckPodDeleted Check = "pod-deleted"
)

// An objectKind is a kind of object that a token may name, with its checks.
type objectKind struct {
	name               string // for people
	gone, uid, deleted Check
}

// The kinds. They are never changed.
var (
	accountKind = objectKind{"service account", CheckServiceAccountGone, CheckServiceAccountUID, CheckServiceAccountDeleted}
	secretKind  = objectKind{"secret", CheckSecretGone, CheckSecretUID, CheckSecretDeleted}
	podKind     = objectKind{"pod", CheckPodGone, CheckPodUID, CheckPodDeleted}
	nodeKind    = objectKind{"node", CheckNodeGone, CheckNodeUID, CheckNodeDeleted}
)

// A held object is what the getter said of an object that a token names.
type held struct {
	kind   *objectKind
	claim  Ref
	object *Object // nil where there is an error
	err    error   // the getter's
}

// emptyNameError is what the API server's client says of a name that is empty. Nothing
// is asked for one.
type emptyNameError struct{}

func (emptyNameError) Error() string { return "resource name may not be empty" }
func (emptyNameError) Unwrap() error { return ErrNotFound }

func holdAccount(ctx context.Context, objects Objects, namespace string, claim Ref) held {
	h := held{kind: &accountKind, claim: claim, err: emptyNameError{}}
	if claim.Name != "" {
		h.object, h.err = objects.ServiceAccount(ctx, namespace, claim.Name)
	}
	return h.answered()
}

func holdSecret(ctx context.Context, objects Objects, namespace string, claim Ref) held {
	h := held{kind: &secretKind, claim: claim, err: emptyNameError{}}
	if claim.Name != "" {
		h.object, h.err = objects.Secret(ctx, namespace, claim.Name)
	}
	return h.answered()
}

func holdPod(ctx context.Context, objects Objects, namespace string, claim Ref) (held, *Pod) {
	h := held{kind: &podKind, claim: claim, err: emptyNameError{}}
	var pod *Pod
	if claim.Name != "" {
		pod, h.err = objects.Pod(ctx, namespace, claim.Name)
	}
	if pod != nil {
		h.object = &pod.Object
	}
	return h.answered(), pod
}

func holdNode(ctx context.Context, objects Objects, claim Ref) (held, *Node) {
	h := held{kind: &nodeKind, claim: claim, err: emptyNameError{}}
	var node *Node
	if claim.Name != "" {
		node, h.err = objects.Node(ctx, claim.Name)
	}
	if node != nil {
		h.object = &node.Object
	}
	return h.answered(), node
}

// answered makes an error of a getter that returned nothing.
func (h held) answered() held {
	if h.err == nil && h.object == nil {
		h.err = errNoAnswer
	}
	return h
}

// check holds the object against the claim: it is there, has the UID, and was not
// deleted before the given time, where that is zero not at all. Where the getter could not answer, ErrRetry is in the
// chain.
func (h held) check(deletedBefore time.Time) *Error {
	what := h.kind.name + " " + refusal.Text(h.claim.Name)
	switch {
	case h.err != nil && !errors.Is(h.err, ErrNotFound):
		return &Error{Check: h.kind.gone, Got: "no answer", Want: what, Err: retry(what, h.err)}
	case h.err != nil:
		return &Error{Check: h.kind.gone, Got: "none", Want: what, Err: h.err}
	case h.object.UID != h.claim.UID:
		return &Error{Check: h.kind.uid, Got: what + " with UID " + refusal.OrNothing(refusal.Text(h.object.UID)), Want: refusal.OrNothing(refusal.Text(h.claim.UID))}
	case h.object.Deleted != nil && (deletedBefore.IsZero() || h.object.Deleted.Before(deletedBefore)):
		return &Error{Check: h.kind.deleted, Got: what + ", deleted at " + h.object.Deleted.UTC().Format(time.RFC3339), Want: "one that lives"}
	}
	return nil
}
