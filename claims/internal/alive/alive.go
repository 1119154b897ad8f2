// Package alive compares the objects that a token names with those that exist, for the
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

// A Kind is a kind of object that a token may name. The checks for it are named after it:
// "pod-gone", that it exists; "pod-uid", that it is the one that existed when the token was
// issued; and "pod-deleted", that it is not being deleted.
type Kind struct {
	// Name is the kind's name for people, and Resource that in the paths of the API server.
	Name, Resource string
	// Namespaced says whether its objects are in the token's namespace, or in none.
	Namespaced bool
}

// The kinds of objects that a token may name.
var (
	ServiceAccount = Kind{"service account", "serviceaccounts", true}
	Secret         = Kind{"secret", "secrets", true}
	Pod            = Kind{"pod", "pods", true}
	Node           = Kind{"node", "nodes", false}

	ValidatingWebhookConfiguration = Kind{"validating webhook configuration", "validatingwebhookconfigurations", false}
	MutatingWebhookConfiguration   = Kind{"mutating webhook configuration", "mutatingwebhookconfigurations", false}
)

// Namespace returns the namespace of the kind's objects that a token in that one names.
func (k Kind) Namespace(of string) string {
	if k.Namespaced {
		return of
	}
	return ""
}

// Check returns the kind's check with that name: "gone", "uid" or "deleted".
func (k Kind) Check(name string) refusal.Check {
	return refusal.Check(strings.ReplaceAll(k.Name, " ", "-") + "-" + name)
}

// An Answer is what a getter returned for the object.
type Answer struct {
	// Found says whether there is an object; Err is why there is none. A getter that
	// returned neither leaves both unset.
	Found bool
	Err   error
	// UID is the object's UID, and Deleted its deletionTimestamp, or nil if it has none.
	UID     string
	Deleted *time.Time
}

// ErrNoAnswer means that a getter returned neither an answer nor an error.
var ErrNoAnswer = errors.New("neither an answer nor an error")

// Compare compares the answer with what a token claims: the object must exist, have the UID, and not
// have been deleted before deletedBefore, or not at all if that is the zero time. If the
// getter did not answer, the error is [refusal.ErrRetry], not one of the kind's checks.
func (k Kind) Compare(name, uid string, a Answer, deletedBefore time.Time) error {
	what := k.Name + " " + refusal.Text(name)
	if !a.Found && a.Err == nil {
		a.Err = ErrNoAnswer
	}
	switch {
	case a.Err != nil && !errors.Is(a.Err, ErrNotFound):
		return &refusal.Error{Check: refusal.ErrRetry, Got: "no answer", Want: what, Err: a.Err}
	case a.Err != nil:
		return &refusal.Error{Check: k.Check("gone"), Got: "none", Want: what, Err: a.Err}
	case a.UID != uid:
		return &refusal.Error{Check: k.Check("uid"), Got: what + " with UID " + refusal.OrNothing(refusal.Text(a.UID)), Want: refusal.OrNothing(refusal.Text(uid))}
	case a.Deleted != nil && (deletedBefore.IsZero() || a.Deleted.Before(deletedBefore)):
		return &refusal.Error{Check: k.Check("deleted"), Got: what + ", deleted at " + a.Deleted.UTC().Format(time.RFC3339), Want: "one that lives"}
	}
	return nil
}
