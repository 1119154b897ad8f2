// Package refusal defines refusals for every package of this module: a named check
// that failed, the value found, and the value wanted ([Error]). It distinguishes a refusal
// from a question that could not be answered ([ErrRetry]), and it has the only way by which
// text from outside gets into an error or a log ([Text]).
//
// It imports no other package of this module, and any of them may import it.
package refusal

import (
	"fmt"
	"strings"
)

// Check names one check. Each Check is itself an error, so that a caller can branch with
// errors.Is(err, statement.CheckMagic). The text of a Check is stable: it is the "expect"
// member of the test vectors.
type Check string

// Error returns the check's stable name.
func (c Check) Error() string { return string(c) }

// Refuse returns an [Error] of the check, without a cause.
func (c Check) Refuse(got, want string) error { return &Error{Check: c, Got: got, Want: want} }

// ErrRetry says that a question could not be answered now, neither yes nor no. It is
// never a refusal: the same call may succeed later. [Retry] adds it to a cause.
const ErrRetry Check = "could not decide, try again"

// CheckConfig says that a constructor was given a configuration that it cannot use: the
// fault of the program that called it, never of input from outside. [Config] makes such an
// error.
const CheckConfig Check = "configuration"

// Error is one failed check. A package returns it as *Error.
//
// Got and Want are for people. They may hold untrusted text; the method Error escapes
// and shortens them. They never hold a secret.
type Error struct {
	// Check is the check that failed, or [ErrRetry].
	Check Check
	// Got is the value found; "" for nothing.
	Got string
	// Want is the value that the check requires; "" if there is nothing to say.
	Want string
	// Err is the cause, if another function found the fault; it may be nil.
	Err error
}

// Error returns the check, both values and the cause in one line of printable text. Got and
// Want are shown as by [Text]; a cause is cut to 4096 bytes.
func (e *Error) Error() string {
	if e == nil {
		return "an error that is nil"
	}
	line := text(string(e.Check), maxText)
	if e.Got != "" || e.Want != "" {
		line += ": got " + Text(OrNothing(e.Got))
	}
	if e.Want != "" {
		line += ", want " + Text(e.Want)
	}
	if e.Err != nil {
		line += ": " + text(e.Err.Error(), maxCause)
	}
	return line
}

// Format prints what Error returns, also for an Error that is no pointer, whose fields fmt would
// otherwise print as they are.
func (e Error) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), e.Error()) // as fmt does
}

// Unwrap lets errors.Is find the check, and errors.Is and errors.As the cause.
func (e *Error) Unwrap() []error {
	switch {
	case e == nil:
		return nil
	case e.Err == nil:
		return []error{e.Check}
	}
	return []error{e.Check, e.Err}
}

// Reason returns the check's name in CamelCase, like the reason of a Kubernetes condition:
// "hello-expired" becomes "HelloExpired". It is "" for a nil Error.
func (e *Error) Reason() string {
	if e == nil {
		return ""
	}
	var b strings.Builder
	for word := range strings.SplitSeq(string(e.Check), "-") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]))
			b.WriteString(word[1:])
		}
	}
	return b.String()
}

// Config says that a field of a configuration cannot be used: errors.Is finds [CheckConfig]
// in the result. got is the field's value, "" for nothing, and want describes its valid values;
// neither is a secret.
func Config(field, got, want string) error {
	if got == "" {
		return &Error{Check: CheckConfig, Got: "no " + field, Want: want}
	}
	return &Error{Check: CheckConfig, Got: field + " " + got, Want: want}
}

// Retry says that err kept a question from being answered: errors.Is finds both [ErrRetry]
// and err in the result. It returns nil for nil.
func Retry(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Check: ErrRetry, Err: err}
}
