package names

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ValidText reports whether s is printable UTF-8 of at most size bytes. The empty string is valid.
func ValidText(s string, size int) bool {
	return len(s) <= size && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// IsHex reports whether s is this number of lower-case hexadecimal digits.
func IsHex(s string, digits int) bool {
	return len(s) == digits && strings.Trim(s, "0123456789abcdef") == ""
}

// ValidIssuer reports whether a name can denote an issuer in a machine identity.
func ValidIssuer(name string) bool {
	alien := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' }
	return name != "" && len(name) <= 63 && !strings.ContainsFunc(name, alien)
}
