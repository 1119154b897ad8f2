package claims

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Check names one check that a token, a request or an answer must pass. Every refusal
// of this package that is about one check is an [*Error] that carries it, and each
// Check is itself an error, so that a caller branches with
// errors.Is(err, claims.CheckExpired). The text of a Check is stable.
type Check string

// Error returns the check's stable name with the package's prefix.
func (c Check) Error() string { return "claims: " + string(c) }

// The checks on a claim set's encoding; see [Parse].
const (
	// CheckSize: the claim set is longer than MaxClaimsSize.
	CheckSize Check = "claims-size"
	// CheckEncoding: the claim set is no strict JSON object: a syntax error, invalid
	// UTF-8, a member twice or in two cases, bytes behind the object.
	CheckEncoding Check = "claims-encoding"
	// CheckType: a claim has another JSON type than the one that it must have.
	CheckType Check = "claims-type"
	// CheckTime: a claim states a time before 1970 or after the year 9999.
	CheckTime Check = "claims-time"
)

// ErrRetry says that a question could not be answered now, neither yes nor no: an
// object getter, a key set or a signer failed. The same call may succeed later.
const ErrRetry Check = "could not decide, try again"

// ErrNotFound says that an object does not exist. An implementation of [Objects]
// returns an error that errors.Is finds it in, best made by [NewNotFound].
const ErrNotFound Check = "object not found"

// Error is a check that failed. Got and Want are for people: what was found, shortened
// where long, and what the check asks for. They hold no token and no key.
type Error struct {
	// Check is the check that failed.
	Check Check
	// Got is what was found; "" where nothing was.
	Got string
	// Want is what the check asks for; "" where there is nothing to say.
	Want string
	// Err is the cause, where something else found the fault; it may be nil.
	Err error
}

// Error gives the check, both values and the cause in one line. What a sender chose is in
// it: characters that do not print stand there as Go escapes.
func (e *Error) Error() string {
	if e == nil {
		return "claims: an error that is nil"
	}
	var b strings.Builder
	b.WriteString(e.Check.Error())
	if e.Got != "" || e.Want != "" {
		b.WriteString(": got ")
		b.WriteString(printable(orNothing(e.Got)))
		if e.Want != "" {
			b.WriteString(", want ")
			b.WriteString(printable(e.Want))
		}
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(printable(e.Err.Error()))
	}
	return b.String()
}

// Unwrap lets errors.Is find the check and errors.As the cause.
func (e *Error) Unwrap() []error {
	if e == nil {
		return nil
	}
	if e.Err == nil {
		return []error{e.Check}
	}
	return []error{e.Check, e.Err}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// shorten cuts what came from outside to a length that fits into a log line.
func shorten(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// printable escapes what does not print, line breaks and terminal controls among it.
func printable(s string) string {
	strange := func(r rune) bool { return r == utf8.RuneError || !strconv.IsPrint(r) }
	if !strings.ContainsFunc(s, strange) {
		return s
	}
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}
