package csr

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one rule that a request must keep; see [refusal.Check]. Every refusal of
// this package is an [*Error] that carries one. A configuration that cannot be used
// gives [refusal.CheckConfig].
type Check = refusal.Check

// Error is one broken rule; see [refusal.Error]. It holds nothing secret, since a
// request holds nothing secret.
type Error = refusal.Error

// Errors are all the rules that one request breaks, in the order in which they are
// checked. An Errors that is an error has at least one element.
type Errors []*Error

// Error gives every broken rule in one line.
func (all Errors) Error() string {
	each := make([]string, len(all))
	for i, e := range all {
		each[i] = e.Error()
	}
	return strings.Join(each, "; ")
}

// Unwrap lets errors.Is and errors.As look into every one.
func (all Errors) Unwrap() []error {
	each := make([]error, len(all))
	for i, e := range all {
		each[i] = e
	}
	return each
}

// fault is a condition that must not hold, and what to say where it does.
type fault struct {
	there     bool
	check     Check
	got, want string
}

type faults []fault

// all are the faults that are there.
func (f faults) all() (all Errors) {
	for _, one := range f {
		if one.there {
			all = append(all, &Error{Check: one.check, Got: one.got, Want: one.want})
		}
	}
	return all
}

// first is the first of them; nil where there is none.
func (f faults) first() error {
	if all := f.all(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// ErrRetry says that a question could not be answered now, neither yes nor no: the
// request stays as it is and is looked at again. [Retry] adds it to a cause.
const ErrRetry = refusal.ErrRetry

// Answers that are no refusal of a request. They are wrapped or not.
const (
	// ErrNoMachine is what [Policy.Machines] returns where it knows for certain that
	// there is no machine for a node name. Every other error means that it could not
	// find out.
	ErrNoMachine Check = "no such machine"
	// ErrNoRecord is what [Policy.Records] returns where it knows for certain that no
	// certificate with that credential ID was issued. Every other error means that it
	// could not find out.
	ErrNoRecord Check = "no such record"
	// ErrOtherSigner says that a request is filed under a signer that a [Policy] or
	// [Providers] do not serve, or that [CA.Issue] was asked for a certificate of one
	// for which the CA does not sign. Somebody else answers the request.
	ErrOtherSigner Check = "the request is for a signer that is not served here"
	// ErrUnsupportedKey says that a public key is none of those that [CanonicalSPKI]
	// knows, or is not a valid one.
	ErrUnsupportedKey Check = "unsupported public key"
)

// begun says why nothing is begun with a context: it is over, or nil, which is a
// programmer's error and no request's fault.
func begun(ctx context.Context) error {
	if ctx == nil {
		return Retry(errors.New("the context is nil"))
	}
	return Retry(ctx.Err())
}

// Retry wraps err so that errors.Is(result, ErrRetry) holds and err stays reachable. It
// returns nil for nil.
func Retry(err error) error { return refusal.Retry(err) }

// nameOf is the n-th of the names of a type's values, or the type and the number.
func nameOf(kind string, n int, names ...string) string {
	if n >= 0 && n < len(names) && names[n] != "" {
		return names[n]
	}
	return kind + "(" + strconv.Itoa(n) + ")"
}
