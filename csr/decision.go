package csr

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Verdict is what to do with a request.
type Verdict int

// The three verdicts. The zero value is VerdictRetry, so that a Decision that
// nobody made decides nothing.
const (
	// VerdictRetry leaves the request as it is, to be looked at again later.
	VerdictRetry Verdict = iota
	// VerdictDeny refuses for good: on Kubernetes a Denied condition, which never
	// goes away. The node has to file another request.
	VerdictDeny
	// VerdictApprove accepts.
	VerdictApprove
)

// String returns "retry", "deny", "approve", or "verdict(<number>)".
func (v Verdict) String() string {
	switch v {
	case VerdictRetry:
		return "retry"
	case VerdictDeny:
		return "deny"
	case VerdictApprove:
		return "approve"
	}
	return "verdict(" + strconv.Itoa(int(v)) + ")"
}

// The reasons of decisions that no rule gives its name.
const (
	// ReasonApproved stands in every approval.
	ReasonApproved = "RequestAccepted"
	// ReasonRetry stands where nothing could be decided.
	ReasonRetry = "TryAgain"
	// ReasonRefused stands where a refusal gives no usable reason of its own.
	ReasonRefused = "RequestRefused"
)

// The longest reason and message of a [Decision], in bytes. kubectl and people read
// them, and each is stored with the request.
const (
	MaxReasonSize  = 128
	MaxMessageSize = 2048
)

// Decision is a verdict in the form of a condition of a CertificateSigningRequest.
type Decision struct {
	// Verdict is what to do.
	Verdict Verdict
	// Reason is one CamelCase word of ASCII letters and digits, beginning with a
	// letter, 1 to MaxReasonSize bytes. For a violation it is the rule's name:
	// subject-common-name gives SubjectCommonName.
	Reason string
	// Message is for people: printable UTF-8 in one line, at most MaxMessageSize
	// bytes. Whoever may read the request can read it, so it holds no secret as
	// long as the errors that it comes from hold none.
	Message string
}

// Decide turns the outcome of a check into a Decision.
//
//   - nil approves.
//   - A [*Violation], [Violations], or any error with a method DenyReason() string,
//     anywhere in the tree of err, denies, even where other parts of the tree could
//     not be decided: what is wrong stays wrong. The method's result is the reason.
//   - [ErrRetry], context.Canceled, context.DeadlineExceeded and every error of
//     unknown kind mean retry. So does a refusal that was itself caused by one of
//     the first three: the question behind it has no answer yet.
//   - A request that is filed under a signer which the policy does not serve means
//     retry too, in the sense of: leave it alone. A controller that sees other
//     people's requests tells them apart with errors.Is(err, [ErrOtherSigner]), and
//     need not look at them again.
//   - A nil pointer that poses as an error, anywhere in the tree, means retry: whoever
//     made it has said nothing.
func Decide(err error) Decision {
	if err == nil {
		return Decision{Verdict: VerdictApprove, Reason: ReasonApproved, Message: "every check passed"}
	}
	if nilInside(err) {
		return Decision{Verdict: VerdictRetry, Reason: ReasonRetry, Message: "an error that is a nil pointer"}
	}
	if reason, ok := refusedWith(err); ok {
		return Decision{Verdict: VerdictDeny, Reason: cleanReason(reason), Message: cleanMessage(err.Error())}
	}
	return Decision{Verdict: VerdictRetry, Reason: ReasonRetry, Message: cleanMessage(err.Error())}
}

// refusedWith finds the first definite refusal in the tree of err and its reason.
func refusedWith(err error) (reason string, ok bool) {
	switch e := err.(type) {
	case nil:
		return "", false
	case *Violation:
		if e.Check == ErrRetry || undecided(e.Err) {
			return "", false // whatever caused it, there is no answer yet
		}
		return e.Reason(), true
	case interface{ DenyReason() string }:
		if undecided(err) {
			return "", false
		}
		return e.DenyReason(), true
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if reason, ok := refusedWith(inner); ok {
				return reason, true
			}
		}
	case interface{ Unwrap() error }:
		return refusedWith(e.Unwrap())
	}
	return "", false
}

// nilInside finds a nil pointer among the errors in the tree of err, whose methods
// cannot be called.
func nilInside(err error) bool {
	if err == nil {
		return false
	}
	if isNilPointer(err) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), nilInside)
	case interface{ Unwrap() error }:
		return nilInside(e.Unwrap())
	}
	return false
}

// isNilPointer says whether an interface that is not nil holds a nil pointer.
func isNilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

func undecided(err error) bool {
	return errors.Is(err, ErrRetry) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// cleanReason keeps what may stand in a condition's reason.
func cleanReason(s string) string {
	b := make([]byte, 0, min(len(s), MaxReasonSize))
	for i := 0; i < len(s) && len(b) < MaxReasonSize; i++ {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if letter || len(b) > 0 && '0' <= c && c <= '9' {
			b = append(b, c)
		}
	}
	if len(b) == 0 {
		return ReasonRefused
	}
	return string(b)
}

// cleanMessage keeps a message printable, in one line and of bounded size.
func cleanMessage(s string) string {
	const more = " ..."
	var b strings.Builder
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			r = ' '
		}
		if b.Len()+utf8.RuneLen(r)+len(more) > MaxMessageSize {
			b.WriteString(more)
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
