package strictjson

import (
	"bytes"
	"encoding/json"
	"strconv"
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

// scanString reads a string and returns what is between its quotes, checked, and whether it
// contains escapes.
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

// scanEscape skips one escape, or two that form a surrogate pair.
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
	low, _ := codeUnit(r.data[r.pos+6:]) // 0 is not half of a pair
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
// letter becomes the smallest of those that differ from it only in case.
func fold(name []byte) string {
	folded := make([]byte, 0, len(name))
	for _, c := range string(name) {
		smallest := c
		for other := unicode.SimpleFold(c); other != c; other = unicode.SimpleFold(other) {
			smallest = min(smallest, other)
		}
		folded = utf8.AppendRune(folded, smallest)
	}
	return string(folded)
}
