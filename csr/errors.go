package csr

import "strings"

// Rule names one rule that a request must keep. Every refusal of this package is a
// [*Violation] that carries one, and each Rule is itself an error, so that a caller
// branches with errors.Is(err, csr.RuleBlockOrder). The text of a Rule is stable: it is
// the "expect" member of the test vectors.
type Rule string

// Error returns the rule's stable name.
func (r Rule) Error() string { return string(r) }

// Violation is one broken rule. Got and Want are for people: what was found, shortened
// where long, and what the rule asks for. They hold nothing secret, since a request
// holds nothing secret. Err is the cause, where another package found the fault; it may
// be nil.
type Violation struct {
	Rule Rule
	Got  string
	Want string
	Err  error
}

// Error gives the rule, both values and the cause in one line.
func (v *Violation) Error() string { return "csr: " + v.text() }

func (v *Violation) text() string {
	if v == nil {
		return "a violation that is nil"
	}
	var b strings.Builder
	b.WriteString(string(v.Rule))
	if v.Got != "" || v.Want != "" {
		b.WriteString(": got ")
		b.WriteString(orNothing(v.Got))
		if v.Want != "" {
			b.WriteString(", want ")
			b.WriteString(v.Want)
		}
	}
	if v.Err != nil {
		b.WriteString(": ")
		b.WriteString(v.Err.Error())
	}
	return b.String()
}

// Unwrap lets errors.Is find the rule and errors.As the cause.
func (v *Violation) Unwrap() []error {
	if v == nil {
		return nil
	}
	if v.Err == nil {
		return []error{v.Rule}
	}
	return []error{v.Rule, v.Err}
}

// Violations are all the rules that one request breaks, in the order in which they are
// checked. A Violations that is an error has at least one element.
type Violations []*Violation

// Error gives every violation in one line.
func (vs Violations) Error() string {
	var b strings.Builder
	b.WriteString("csr: ")
	for i, v := range vs {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(v.text())
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
const ErrRetry Error = "could not decide, try again"

// Retry wraps err so that errors.Is(result, ErrRetry) holds and err stays reachable. It
// returns nil for nil.
func Retry(err error) error {
	if err == nil {
		return nil
	}
	return &retryError{cause: err}
}

type retryError struct{ cause error }

func (e *retryError) Error() string   { return ErrRetry.Error() + ": " + e.cause.Error() }
func (e *retryError) Unwrap() []error { return []error{ErrRetry, e.cause} }

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
