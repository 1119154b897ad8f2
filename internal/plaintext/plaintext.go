// Package plaintext says what may be recorded as text: names and identifiers that
// people read in a list, a log or a registry.
package plaintext

import (
	"unicode"
	"unicode/utf8"
)

// Valid reports whether s is printable UTF-8 of at most size bytes. The empty string is.
func Valid(s string, size int) bool {
	if len(s) > size || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
