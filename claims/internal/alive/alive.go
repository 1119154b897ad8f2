// Package alive compares the objects that a token names with the existing ones, for the
// validators of claims and of claims/apiserver.
package alive

import (
	"errors"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// ErrNotFound is claims.ErrNotFound; package claims imports this one.
var ErrNotFound = errors.New("object not found")

// A Resource is a Kubernetes resource whose objects a token may name. Its checks are named after
// it: "pod-gone", that the object exists; "pod-uid", that it has the UID that the token names; and
// "pod-deleted", that it is not being deleted.
type Resource struct {
	// Name is the singular name in errors, and Plural the name in the paths of the API server.
	Name, Plural string
	// Namespaced says whether its objects are in the token's namespace, or in none.
	Namespaced bool
}

// The resources whose objects a token may name.
var (
	ServiceAccount = Resource{"service account", "serviceaccounts", true}
	Secret         = Resource{"secret", "secrets", true}
	Pod            = Resource{"pod", "pods", true}
	Node           = Resource{"node", "nodes", false}

	ValidatingWebhookConfiguration = Resource{"validating webhook configuration", "validatingwebhookconfigurations", false}
	MutatingWebhookConfiguration   = Resource{"mutating webhook configuration", "mutatingwebhookconfigurations", false}
)

// Namespace returns the namespace of the objects that a token names: its own, or "" for a
// resource without namespaces.
func (r Resource) Namespace(token string) string {
	if r.Namespaced {
		return token
	}
	return ""
}

// Check returns the resource's check with that name: "gone", "uid" or "deleted".
func (r Resource) Check(name string) refusal.Check {
	return refusal.Check(strings.ReplaceAll(r.Name, " ", "-") + "-" + name)
}

// An Answer is a getter's answer for one object.
type Answer struct {
	// Found says whether there is an object; Err is why there is not. A getter that
	// returned neither leaves both unset.
	Found bool
	Err   error
	// UID is the object's UID, and Deleted its deletionTimestamp, or nil if it has none.
	UID     string
	Deleted *time.Time
}

// ErrNoAnswer means that a getter returned neither an answer nor an error.
var ErrNoAnswer = errors.New("neither an answer nor an error")

// Compare checks the answer for an object that a token names: the object must exist, have the UID,
// and not have been deleted before deletedBefore, or not at all if that is the zero time. If the
// getter did not answer, the error is [refusal.ErrRetry], not one of the resource's checks.
func (r Resource) Compare(name, uid string, a Answer, deletedBefore time.Time) error {
	what := r.Name + " " + refusal.Text(name)
	if !a.Found && a.Err == nil {
		a.Err = ErrNoAnswer
	}
	switch {
	case a.Err != nil && !errors.Is(a.Err, ErrNotFound):
		return &refusal.Error{Check: refusal.ErrRetry, Got: "no answer", Want: what, Err: a.Err}
	case a.Err != nil:
		return &refusal.Error{Check: r.Check("gone"), Got: "none", Want: what, Err: a.Err}
	case a.UID != uid:
		return &refusal.Error{Check: r.Check("uid"), Got: what + " with UID " + refusal.OrNothing(refusal.Text(a.UID)), Want: refusal.OrNothing(refusal.Text(uid))}
	case a.Deleted != nil && (deletedBefore.IsZero() || a.Deleted.Before(deletedBefore)):
		return &refusal.Error{Check: r.Check("deleted"), Got: what + ", deleted at " + a.Deleted.UTC().Format(time.RFC3339), Want: "one that is not"}
	}
	return nil
}
