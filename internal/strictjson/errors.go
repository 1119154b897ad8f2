package strictjson

import "fmt"

// Reason is why bytes are refused. Its values are constants: match them with
// errors.Is.
type Reason string

// Error returns the reason with the package's prefix.
func (r Reason) Error() string { return "strictjson: " + string(r) }

// The reasons. A caller's own error from a callback passes through unchanged.
const (
	// ErrSyntax: not JSON as RFC 8259 has it.
	ErrSyntax Reason = "syntax"
	// ErrType: JSON, but a value of another type than the one asked for.
	ErrType Reason = "type"
	// ErrUTF8: a string holds bytes that are no UTF-8, or an escaped surrogate
	// without its other half.
	ErrUTF8 Reason = "utf8"
	// ErrDuplicate: a name twice in one object.
	ErrDuplicate Reason = "duplicate-name"
	// ErrCase: two names in one object that differ only in case, under Unicode's
	// simple case folding.
	ErrCase Reason = "names-differ-only-in-case"
	// ErrRange: a number that does not fit float64; where an int64 is asked for, one
	// that is no whole number, is written with a fraction or an exponent, or does not
	// fit int64.
	ErrRange Reason = "number-out-of-range"
	// ErrDepth: objects and arrays nested deeper than MaxDepth.
	ErrDepth Reason = "depth"
	// ErrMembers: an object with more than MaxMembers members.
	ErrMembers Reason = "too-many-members"
	// ErrTrailing: bytes other than white space after the value.
	ErrTrailing Reason = "trailing-bytes"
)

// Error is a refusal: its reason, and the offset in bytes at which it was seen.
type Error struct {
	Reason Reason
	Offset int
	// Name is the member name in question, for ErrDuplicate and ErrCase.
	Name string
}

// Error gives reason, offset and name in one line.
func (e *Error) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("%v at byte %d: %.64q", e.Reason, e.Offset, e.Name)
	}
	return fmt.Sprintf("%v at byte %d", e.Reason, e.Offset)
}

// Unwrap lets errors.Is find the reason.
func (e *Error) Unwrap() error { return e.Reason }
