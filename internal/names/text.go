// Package plaintext says what may be recorded as text: names and identifiers that
// people read in a list, a log or a registry.
package names

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/refusal"
)

// ValidText reports whether s is printable UTF-8 of at most size bytes. The empty string is valid.
func ValidText(s string, size int) bool {
	return len(s) <= size && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// ValidIssuer reports whether a name can denote an issuer in a machine identity.
func ValidIssuer(name string) bool {
	alien := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' }
	return name != "" && len(name) <= 63 && !strings.ContainsFunc(name, alien)
}

const (
	// maxShown is how many bytes of a text Apart shows.
	maxShown = 80
	// before is how many of them are in front of the first difference.
	before = 30
)

// Apart quotes two texts that differ, for an error. Of long ones it shows the part where they begin
// to differ, or both would look the same. Texts with one spelling, of the same length as they are,
// do not differ; nil means that each has its own.
func Apart(got, want string, spelling func(string) string) (string, string) {
	a, b, from := got, want, 0
	if spelling != nil {
		a, b = spelling(a), spelling(b)
	}
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	return part(got, from), part(want, from)
}

// part quotes a text from a little in front of a place.
func part(s string, from int) string {
	from = max(0, min(from-before, len(s)-maxShown))
	for from > 0 && !utf8.RuneStart(s[from]) {
		from++
	}
	if from == 0 {
		return refusal.Quote(s)
	}
	return "..." + refusal.Quote(s[from:])
}
