package csr

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// Check names one rule that a request must keep; see [refusal.Check]. Every refusal by this
// package is an [*Error] that carries one. An unusable configuration gives
// [refusal.CheckConfig].
type Check = refusal.Check

// Error is one broken rule; see [refusal.Error]. It holds nothing secret, since a
// request holds nothing secret.
type Error = refusal.Error

// Errors are all the rules that one request breaks, in the order in which they are
// checked. An Errors that is an error has at least one element.
type Errors []*Error

// Error returns every broken rule in one line.
func (all Errors) Error() string {
	each := make([]string, len(all))
	for i, e := range all {
		each[i] = e.Error()
	}
	return strings.Join(each, "; ")
}

// Unwrap lets errors.Is and errors.As look into each of them.
func (all Errors) Unwrap() []error {
	each := make([]error, len(all))
	for i, e := range all {
		each[i] = e
	}
	return each
}

// fault is a condition that must not hold, and what to say if it does.
type fault struct {
	there     bool
	check     Check
	got, want string
}

type faults []fault

// all returns the faults that are present.
func (f faults) all() (all Errors) {
	for _, one := range f {
		if one.there {
			all = append(all, &Error{Check: one.check, Got: one.got, Want: one.want})
		}
	}
	return all
}

// first returns the first fault, or nil.
func (f faults) first() error {
	if all := f.all(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Answers that do not refuse a request. They may be wrapped.
var (
	// ErrNoMachine is what [Policy.Machines] returns if it knows for certain that there is
	// no machine for a node name. Every other error means that it could not find out.
	ErrNoMachine = errors.New("no such machine")
	// ErrNoRecord is what [Policy.IssuedRecord] returns if it knows for certain that no
	// certificate with that credential ID was issued. Every other error means that it could
	// not find out.
	ErrNoRecord = errors.New("no such record")
	// ErrOtherSigner says that a request is filed under a signer that a [Policy] or a verifier
	// does not serve, or that [CA.Issue] was asked for a certificate of a signer
	// for which the CA does not sign. Another controller answers the request.
	ErrOtherSigner = errors.New("the request is for a signer that is not served here")
)

// begun says why nothing can be started with a context: it is done, or it is nil, which is
// the programmer's error and not the fault of a request.
func begun(ctx context.Context) error {
	if ctx == nil {
		return refusal.Retry(errors.New("the context is nil"))
	}
	return refusal.Retry(ctx.Err())
}

// nameOf returns the n-th of the names of a type's values, or the type and the number.
func nameOf(kind string, n int, names ...string) string {
	if n >= 0 && n < len(names) && names[n] != "" {
		return names[n]
	}
	return kind + "(" + strconv.Itoa(n) + ")"
}

// checkUnsupportedKey: a public key is of a kind that [CanonicalSPKI] supports, and valid.
const checkUnsupportedKey Check = "unsupported-key"
