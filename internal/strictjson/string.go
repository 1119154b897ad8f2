package strictjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// String reads a string.
func (r *Reader) String() (string, error) {
	text, err := r.Text()
	return string(text), err
}

// Text reads a string and returns its UTF-8 bytes. They share memory with the input if the
// string contains no escapes, and are newly allocated if it does.
func (r *Reader) Text() ([]byte, error) {
	raw, err := r.scanString()
	if err != nil || bytes.IndexByte(raw, '\\') < 0 {
		return raw, err
	}
	var text string
	if err := json.Unmarshal(r.data[r.pos-len(raw)-2:r.pos], &text); err != nil { // scanString has checked it
		return nil, r.syntax()
	}
	return []byte(text), nil
}

// scanString reads a string and returns the checked text between its quotes.
func (r *Reader) scanString() ([]byte, error) {
	if err := r.want(StringKind); err != nil {
		return nil, err
	}
	r.pos++
	start := r.pos
	for r.pos < len(r.data) {
		c, size := utf8.DecodeRune(r.data[r.pos:])
		switch {
		case c == '"':
			r.pos++
			return r.data[start : r.pos-1 : r.pos-1], nil
		case c < ' ':
			return nil, r.syntax()
		case c == utf8.RuneError && size == 1:
			return nil, r.fail(ErrUTF8)
		case c == '\\':
			var err error
			if size, err = r.escape(); err != nil {
				return nil, err
			}
		}
		r.pos += size
	}
	return nil, r.syntax()
}

// escape returns the size of the escape that is next, or of two that form a surrogate pair.
func (r *Reader) escape() (int, error) {
	text := r.data[r.pos:]
	if len(text) > 1 && strings.IndexByte(`"\/bfnrt`, text[1]) >= 0 {
		return 2, nil
	}
	unit, ok := codeUnit(text)
	if !ok {
		return 0, r.syntax()
	}
	if !utf16.IsSurrogate(unit) {
		return 6, nil
	}
	low, _ := codeUnit(text[6:]) // 0 is not half of a pair
	if utf16.DecodeRune(unit, low) == utf8.RuneError {
		return 0, r.fail(ErrUTF8)
	}
	return 12, nil
}

// codeUnit decodes the \uXXXX at the front of b.
func codeUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	return rune(unit), err == nil
}

// few is the number of names up to which comparing with each one is cheaper than a map.
const few = 16

// names are the member names of one object seen so far: up to few as they are, and all by
// their folded form once there are more.
type names struct {
	first  [few][]byte
	count  int
	folded map[string]string // folded form to original
}

// add adds a name, or returns why it is not allowed alongside those before it.
func (n *names) add(name []byte) Reason {
	if n.count == MaxMembers {
		return ErrMembers
	}
	if n.count < few {
		for _, other := range n.first[:n.count] {
			if bytes.EqualFold(other, name) {
				return collision(string(other), name)
			}
		}
		n.first[n.count] = name
		n.count++
		return ""
	}
	if n.folded == nil {
		n.folded = make(map[string]string, 2*few)
		for _, other := range n.first {
			n.folded[fold(other)] = string(other)
		}
	}
	key := fold(name)
	if other, ok := n.folded[key]; ok {
		return collision(other, name)
	}
	n.folded[key] = string(name)
	n.count++
	return ""
}

func collision(other string, name []byte) Reason {
	if other == string(name) {
		return ErrDuplicate
	}
	return ErrCase
}

// fold returns a text that is the same for names that bytes.EqualFold considers equal: each
// letter becomes the smallest letter that differs from it only in case.
func fold(name []byte) string {
	return strings.Map(func(c rune) rune {
		smallest := c
		for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
			smallest = min(smallest, other)
		}
		return smallest
	}, string(name))
}
