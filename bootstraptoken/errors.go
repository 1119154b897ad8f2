package bootstraptoken

import (
	"errors"
	"strings"
)

// Check names one check of this package. Every refusal is an [*Error] that carries one,
// and each Check is itself an error, so that a caller branches with
// errors.Is(err, bootstraptoken.CheckExpired). The text of a Check is stable.
type Check string

// Error returns the check's stable name with the package's prefix.
func (c Check) Error() string { return "bootstraptoken: " + string(c) }

// ErrRetry says that a question could not be answered now, neither yes nor no: the
// caller asks again later. It is never a refusal.
const ErrRetry Check = "could not decide, try again"

// Error is one failed check. Got and Want are for people: what was found, where it can
// be told, and what the check asks for. They never hold a token's secret, nor anything
// that a slip of the pen could have made one, such as a whole token in the place of its
// ID. Err is the cause where another function found the fault; it may be nil.
type Error struct {
	Check Check
	Got   string
	Want  string
	Err   error
}

// Error gives the check, both values and the cause in one line.
func (e *Error) Error() string {
	if e == nil {
		return "bootstraptoken: an error that is nil"
	}
	var b strings.Builder
	b.WriteString(e.Check.Error())
	if e.Got != "" || e.Want != "" {
		b.WriteString(": got ")
		if e.Got == "" {
			b.WriteString("nothing")
		}
		b.WriteString(e.Got)
		if e.Want != "" {
			b.WriteString(", want ")
			b.WriteString(e.Want)
		}
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	return b.String()
}

// Unwrap lets errors.Is find the check and errors.As the cause.
func (e *Error) Unwrap() []error {
	switch {
	case e == nil:
		return nil
	case e.Err == nil:
		return []error{e.Check}
	}
	return []error{e.Check, e.Err}
}

// retry wraps the cause of a question that could not be answered.
func retry(err error) error {
	if err == nil {
		err = errors.New("no cause given")
	}
	return &Error{Check: ErrRetry, Err: err}
}
