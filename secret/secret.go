// Package secret has the only type in which this module holds secrets: passwords, private
// keys, the secrets of bootstrap tokens, bearer tokens and the keys that challenges are made
// with. [Value] keeps its secret out of logs, errors and encoded objects, even in an
// unexported field.
//
// It guards against mistakes, not against the process: anyone who can call [Value.Reveal],
// or read the memory, has the secret.
package secret

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is shown in place of the secret in a [Value].
const Redacted = "[secret]"

// errEncoding is returned by everything that would store or restore a [Value]: a secret
// leaves it only through [Value.Reveal].
var errEncoding = errors.New("secret: a secret is not encoded or decoded; Reveal it where it must be stored")

// Value holds one secret of type T. Its zero value holds none. Copies share the secret.
// It shows [Redacted] with every verb of package fmt, and in log/slog, encoding/json and
// every encoder that asks for text; gob and decoders get an error.
//
// Two values cannot be compared with ==, which would compare where the secrets are kept and
// not what they are: [Value.Reveal] both, and compare in constant time.
type Value[T any] struct {
	_ [0]func() // no ==
	// In unexported fields fmt cannot call methods, and it follows a pointer to a slice, map
	// or struct for a verb that does not fit. It never follows a pointer to a pointer.
	held **T
}

// New returns a Value that holds v. Bytes are not copied: from then on v belongs to the
// Value.
func New[T any](v T) Value[T] {
	p := &v
	return Value[T]{held: &p}
}

// Reveal returns the secret, or T's zero value if v is empty.
func (v Value[T]) Reveal() T {
	if v.held == nil {
		var none T
		return none
	}
	return **v.held
}

// IsZero reports whether v holds nothing, that is, whether it is the zero Value. A Value
// made by [New] from an empty password is not zero.
func (v Value[T]) IsZero() bool { return v.held == nil }

// String returns [Redacted], or "" for the zero Value.
func (v Value[T]) String() string {
	if v.held == nil {
		return ""
	}
	return Redacted
}

// Format writes what [Value.String] returns, whatever the verb.
func (v Value[T]) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, v.String()) }

// LogValue gives log/slog what [Value.String] returns.
func (v Value[T]) LogValue() slog.Value { return slog.StringValue(v.String()) }

// MarshalText returns what [Value.String] returns: encoding/json and others call it.
func (v Value[T]) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText returns an error: what MarshalText wrote is not a secret.
func (v *Value[T]) UnmarshalText([]byte) error { return errEncoding }

// GobEncode returns an error.
func (v Value[T]) GobEncode() ([]byte, error) { return nil, errEncoding }

// GobDecode returns an error.
func (v *Value[T]) GobDecode([]byte) error { return errEncoding }
