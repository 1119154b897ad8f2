package attest

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Check names one check of a verification. Every refusal of this package is an
// [*Error] that carries one, and each Check is itself an error, so that a caller
// branches with errors.Is(err, attest.CheckMagic). The text of a Check is stable:
// it is the "expect" member of the test vectors.
type Check string

// Error returns the check's stable name.
func (c Check) Error() string { return string(c) }

// Error is a refusal: the check that failed, and what was found where what was
// expected. Got and Want are for people (hexadecimal for bytes, shortened where
// long) and never hold a secret. Err is the cause, where another package found
// the fault.
type Error struct {
	Check Check
	Got   string
	Want  string
	Err   error
}

// Error gives the check, both values and the cause in one line. What a node chose is
// in it: characters that do not print stand there as Go escapes.
func (e *Error) Error() string {
	if e == nil {
		return "attest: no error"
	}
	var b strings.Builder
	b.WriteString("attest: ")
	b.WriteString(string(e.Check))
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
	switch {
	case e == nil:
		return nil
	case e.Err == nil:
		return []error{e.Check}
	}
	return []error{e.Check, e.Err}
}

// DenyReason is the reason of the Denied condition that a refusal becomes on
// Kubernetes: the check's name in CamelCase. The node files again after
// HelloExpired ([CheckHelloExpired]).
func (e *Error) DenyReason() string {
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

// printable escapes what does not print, line breaks and terminal controls among it.
func printable(s string) string {
	plain := func(r rune) bool { return r != utf8.RuneError && strconv.IsPrint(r) }
	if !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if plain(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}
