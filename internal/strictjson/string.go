package strictjson

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// String reads a string.
func (r *Reader) String() (string, error) {
	text, err := r.Text()
	return string(text), err
}

// Text reads a string and returns its UTF-8 bytes. They share memory with the text that
// is read if the string holds no escapes, and are fresh if it does.
func (r *Reader) Text() ([]byte, error) {
	raw, escaped, err := r.scanString()
	if err != nil {
		return nil, err
	}
	if !escaped {
		return raw, nil
	}
	var text string
	quoted := r.data[r.pos-len(raw)-2 : r.pos]
	if err := json.Unmarshal(quoted, &text); err != nil { // scanString has checked it
		return nil, r.syntax()
	}
	return []byte(text), nil
}

// scanString reads a string and returns what stands between its quotes, checked, and
// whether it holds escapes.
func (r *Reader) scanString() (raw []byte, escaped bool, err error) {
	if err := r.want(StringKind); err != nil {
		return nil, false, err
	}
	r.pos++
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			raw = r.data[start:r.pos:r.pos]
			r.pos++
			return raw, escaped, nil
		case c < ' ':
			return nil, false, r.syntax()
		case c == '\\':
			escaped = true
			if err := r.scanEscape(); err != nil {
				return nil, false, err
			}
		case c < utf8.RuneSelf:
			r.pos++
		default:
			c, size := utf8.DecodeRune(r.data[r.pos:])
			if c == utf8.RuneError && size == 1 {
				return nil, false, r.fail(ErrUTF8)
			}
			r.pos += size
		}
	}
	return nil, false, r.syntax()
}

// scanEscape passes over one escape, or over two that are a surrogate pair.
func (r *Reader) scanEscape() error {
	if r.pos+1 >= len(r.data) {
		return r.syntax()
	}
	switch r.data[r.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		r.pos += 2
		return nil
	}
	unit, ok := codeUnit(r.data[r.pos:])
	switch {
	case !ok:
		return r.syntax()
	case !utf16.IsSurrogate(unit):
		r.pos += 6
		return nil
	}
	low, _ := codeUnit(r.data[r.pos+6:]) // 0 is no half of a pair
	if utf16.DecodeRune(unit, low) == utf8.RuneError {
		return r.fail(ErrUTF8)
	}
	r.pos += 12
	return nil
}

// codeUnit decodes the \uXXXX at the front of b.
func codeUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(unit), err == nil
}
