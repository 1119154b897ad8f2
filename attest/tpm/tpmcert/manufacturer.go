package tpmcert

import (
	"bytes"
	"encoding/hex"
	"strings"
)

// vendorID is the identifier of a manufacturer in one form for all spellings: letters in
// upper case, and filled up with NUL bytes, where some are filled up with spaces.
type vendorID [4]byte

const vendorPrefix = "id:"

// vendorIDOf reads "id:" and 8 hexadecimal digits.
func vendorIDOf(manufacturer string) (id vendorID, ok bool) {
	digits, ok := strings.CutPrefix(manufacturer, vendorPrefix)
	if b, err := hex.DecodeString(digits); ok && err == nil && len(b) == len(id) {
		copy(id[:], bytes.TrimRight(b, " \x00"))
		for n, c := range id {
			if 'a' <= c && c <= 'z' {
				id[n] = c - 'a' + 'A'
			}
		}
		return id, true
	}
	return id, false
}

// vendorIDOfText reads up to 4 letters and digits; of anything else it makes zero.
func vendorIDOfText(text string) (id vendorID) {
	alien := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if len(text) <= len(id) && !strings.ContainsFunc(text, alien) {
		copy(id[:], strings.ToUpper(text))
	}
	return id
}

// text is the identifier without what fills it up, or "" where that is no printable
// ASCII.
func (id vendorID) text() string {
	text := strings.TrimRight(string(id[:]), "\x00")
	if strings.ContainsFunc(text, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		return ""
	}
	return text
}
