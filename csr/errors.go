package csr

import (
	"strings"

	"github.com/nodeattest/nodeattest/refusal"
)

// Rule names one rule that a request must keep; see [refusal.Check]. Every refusal of this
// package is a [*Violation] that carries one.
type Rule = refusal.Check

// Violation is one broken rule; see [refusal.Error]. It holds nothing secret, since a
// request holds nothing secret.
type Violation = refusal.Error

// Violations are all the rules that one request breaks, in the order in which they are
// checked. A Violations that is an error has at least one element.
type Violations []*Violation

// Error gives every violation in one line.
func (vs Violations) Error() string {
	var b strings.Builder
	for i, v := range vs {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(v.Error())
	}
	return b.String()
}

// Unwrap lets errors.Is and errors.As look into every violation.
func (vs Violations) Unwrap() []error {
	all := make([]error, len(vs))
	for i, v := range vs {
		all[i] = v
	}
	return all
}

// Error is a failure of this package that is no violation of a rule. Its values are
// constants: match them with errors.Is.
type Error string

// Error returns the text with the package's prefix.
func (e Error) Error() string { return "csr: " + string(e) }

// ErrRetry says that a question could not be answered now, neither yes nor no: the
// request stays as it is and is looked at again. [Retry] adds it to a cause.
const ErrRetry = refusal.ErrRetry

// Retry wraps err so that errors.Is(result, ErrRetry) holds and err stays reachable. It
// returns nil for nil.
func Retry(err error) error { return refusal.Retry(err) }
