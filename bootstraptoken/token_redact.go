package bootstraptoken

import (
	"fmt"
	"io"
	"log/slog"
	"strconv"
)

const redacted = "[redacted]"

// String returns the ID and "[redacted]" in the place of the secret, as in
// "abcdef.[redacted]".
func (t Token) String() string {
	if t.IsZero() {
		return "no token"
	}
	return t.id + "." + redacted
}

// GoString returns what [Token.String] does, in a form that looks like Go.
func (t Token) GoString() string {
	return "bootstraptoken.Token(" + strconv.Quote(t.String()) + ")"
}

// Format writes the token without its secret for every verb of fmt.
func (t Token) Format(s fmt.State, verb rune) { writeRedacted(s, verb, t) }

// LogValue gives log/slog the token without its secret.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalText returns what [Token.String] does, so that encoders never write a secret.
// What it writes cannot be read back: who wants to store a token calls [Token.Reveal].
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalJSON returns what [Token.String] does, as a JSON string; see [Token.MarshalText].
func (t Token) MarshalJSON() ([]byte, error) { return strconv.AppendQuote(nil, t.String()), nil }

// writeRedacted is the Format method of the types that hold a secret.
func writeRedacted(s fmt.State, verb rune, v interface {
	fmt.Stringer
	fmt.GoStringer
}) {
	text := v.String()
	if verb == 'v' && s.Flag('#') {
		text = v.GoString()
	}
	if verb == 'q' {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(s, text) // fmt has nobody to tell
}
