package refusal

import (
	"cmp"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxText is the maximum number of bytes of a text that [Text] shows, not counting the
	// three dots after a text that was cut.
	maxText = 256
	// maxCause is the maximum number of bytes of a cause that [Error] shows.
	maxCause = 4096
)

// Text makes text from outside safe for an error or a log: one line in which each character
// that does not print (line ends, terminal controls, marks that change the direction of
// writing, bytes that are not UTF-8) becomes a Go escape. The line is cut to 256
// bytes, and then ends with "...". Text of its own result is that result.
func Text(s string) string { return text(s, maxText) }

// Escape is [Text] without the cut, for output to people that is longer than a log line,
// such as a table.
func Escape(s string) string { return text(s, math.MaxInt-len(dots)) }

// Hex is [Text] for bytes: lower-case hexadecimal of the first 128 bytes.
func Hex(b []byte) string {
	if len(b) <= maxText/2 {
		return hex.EncodeToString(b)
	}
	return hex.EncodeToString(b[:maxText/2]) + "..."
}

const dots = "..."

// text escapes s and cuts the result before the character that would exceed most bytes. It
// reads no more of s than it shows.
func text(s string, most int) string {
	// Text that was already cut ends in dots; it stays as it is when an outer error shows
	// it.
	fits := len(s) <= most || len(s) <= most+len(dots) && strings.HasSuffix(s, dots)
	if fits && !strings.ContainsFunc(s, func(r rune) bool { return !prints(r) }) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		shown := s[i : i+size]
		switch {
		case r == utf8.RuneError && size == 1:
			shown = `\x` + hex.EncodeToString([]byte{s[i]})
		case !prints(r):
			quoted := strconv.QuoteRuneToASCII(r)
			shown = quoted[1 : len(quoted)-1]
		}
		if b.Len()+len(shown) > most {
			return b.String() + dots
		}
		b.WriteString(shown)
		i += size
	}
	return b.String()
}

// prints reports whether a character shows something. Some that strconv takes for graphic show
// nothing, so two names with and without them would look alike.
func prints(r rune) bool {
	const braille, notehead = '\u2800', '\U0001d159' // both blank
	switch {
	case r < utf8.RuneSelf:
		return strconv.IsPrint(r)
	case r == utf8.RuneError, r == braille, r == notehead:
		return false
	}
	return strconv.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// maxQuoted is the maximum number of bytes of a value that [Quote] and [Quotes] show.
const maxQuoted = 80

// Quote is [Text] in double quotes, as a Go string literal in ASCII, for a value within a
// sentence. It shows up to 80 bytes of s and, if that is not all, how long s is.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	end := maxQuoted
	for end > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return strconv.QuoteToASCII(s[:end]) + dots + " (" + strconv.Itoa(len(s)) + " bytes)"
}

// maxBefore is the maximum number of bytes that QuoteApart shows before the first difference.
const maxBefore = 30

// QuoteApart is [Quote] for two values that differ. If they are long, it shows where they begin to
// differ, since their beginnings look the same. It compares them as spelling returns them, which should
// keep lengths; nil compares the values themselves.
func QuoteApart(got, want string, spelling func(string) string) (string, string) {
	a, b, from := got, want, 0
	if spelling != nil {
		a, b = spelling(a), spelling(b)
	}
	for from < min(len(a), len(b)) && a[from] == b[from] {
		from++
	}
	return part(got, from), part(want, from)
}

// part quotes a text from maxBefore bytes before a position.
func part(s string, from int) string {
	from = max(0, min(from-maxBefore, len(s)-maxQuoted))
	for from > 0 && !utf8.RuneStart(s[from]) {
		from++
	}
	if from == 0 {
		return Quote(s)
	}
	return dots + Quote(s[from:])
}

// Quotes shows values as [Quote] does, separated by commas: up to eight, and then how many
// there are if there are more.
func Quotes(values []string) string {
	const most = 8
	shown := make([]string, 0, most+1)
	for i, v := range values {
		if i == most {
			shown = append(shown, dots+" ("+strconv.Itoa(len(values))+")")
			break
		}
		shown = append(shown, Quote(v))
	}
	return strings.Join(shown, ", ")
}

// OrNothing returns s, or "nothing" if s is empty, for a value that may be absent.
func OrNothing(s string) string { return cmp.Or(s, "nothing") }
