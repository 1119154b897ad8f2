package strictjson

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// MaxDepth is how deep objects and arrays may be nested. An object that contains no other has
// depth 1.
const MaxDepth = 32

// maxLooseDepth is encoding/json's limit, for [Reader.SkipLoosely].
const maxLooseDepth = 10000

// MaxMembers is how many members one object may have.
const MaxMembers = 10000

// Reader reads one JSON text. Its methods read the next value and move past it; after an error
// the reader's position is meaningless. The zero value reads an empty text, which is refused.
type Reader struct {
	data  []byte
	pos   int
	depth int
	loose bool // in SkipLoosely
}

// NewReader returns a reader of data, which it retains and does not change.
func NewReader(data []byte) *Reader { return &Reader{data: data} }

// Type is the type of a value, determined by its first byte.
type Type byte

// The types of values.
const (
	Invalid     Type = 0 // no value begins here
	ObjectType  Type = '{'
	ArrayType   Type = '['
	StringType  Type = '"'
	NumberType  Type = '0'
	BooleanType Type = 't'
	NullType    Type = 'n'
)

// Type returns the type of the next value, and reads nothing. It does not say that the value
// is well-formed.
func (r *Reader) Type() Type {
	switch c := r.next(); c {
	case '{', '[', '"', 'n':
		return Type(c)
	case 't', 'f':
		return BooleanType
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return NumberType
	}
	return Invalid
}

// Object reads an object. It calls member with each name; member must read the value that
// belongs to it, with Skip if nothing else. The name is valid only during the call: it may
// share memory with the text. An error from member ends the reading and is returned.
func (r *Reader) Object(member func(name []byte) error) error {
	var seen names
	return r.each('{', '}', func() error {
		start := r.pos
		name, err := r.Text()
		if err != nil {
			return err
		}
		if !r.loose {
			if reason := seen.add(name); reason != "" {
				return &Error{Reason: reason, Offset: start, Name: string(name)}
			}
		}
		if r.next(); !r.accept(":") {
			return r.syntax()
		}
		r.next()
		start = r.pos
		if err := member(name); err != nil {
			if own, ok := err.(*Error); ok && own.Name == "" { //nolint:errorlint // the reader's own, as it is
				own.Name = string(name)
			}
			return err
		}
		if r.pos == start {
			return r.syntax() // member read nothing
		}
		return nil
	})
}

// Array reads an array. It calls element before each element, which must read it. An error
// from element ends the reading and is returned.
func (r *Reader) Array(element func() error) error { return r.each('[', ']', element) }

// each reads an object or array: it calls one before each member or element.
func (r *Reader) each(opening Type, closing byte, one func() error) error {
	if err := r.want(opening); err != nil {
		return err
	}
	if r.depth >= MaxDepth && !r.loose || r.depth >= maxLooseDepth {
		return r.fail(ErrDepth)
	}
	r.depth++
	r.pos++
	for first := true; r.next() != closing; first = false {
		if !first && !r.accept(",") {
			return r.syntax()
		}
		r.next()
		start := r.pos
		if err := one(); err != nil {
			return err
		}
		if r.pos == start {
			return r.syntax() // one read nothing
		}
	}
	r.depth--
	r.pos++
	return nil
}

// Fields are the members of an object to read, by name, each with the function that reads its
// value. Other members are checked and skipped.
type Fields map[string]func(*Reader) error

// Into makes a function that reads a string of [Fields].
func Into(s *string) func(*Reader) error {
	return func(r *Reader) (err error) {
		*s, err = r.String()
		return err
	}
}

// Read reads an object.
func (f Fields) Read(r *Reader) error {
	return r.Object(func(name []byte) error {
		if read := f[string(name)]; read != nil {
			return read(r)
		}
		return r.Skip()
	})
}

// Parse reads a text that is one object and nothing else.
func (f Fields) Parse(text []byte) error {
	r := NewReader(text)
	if err := f.Read(r); err != nil {
		return err
	}
	return r.End()
}

// Strings reads an array of strings, and returns a slice that is empty, not nil, for an
// empty array.
func (r *Reader) Strings() ([]string, error) {
	list := []string{}
	err := r.Array(func() error {
		s, err := r.String()
		list = append(list, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Texts reads an object whose values are strings.
func (r *Reader) Texts() (map[string]string, error) {
	texts := map[string]string{}
	err := r.Object(func(name []byte) (err error) {
		key := string(name)
		texts[key], err = r.String()
		return err
	})
	return texts, err
}

// Null reads null.
func (r *Reader) Null() error {
	if err := r.want(NullType); err != nil {
		return err
	}
	return r.literal("null")
}

// Skip reads any value and checks it as the other methods do, including the names in objects.
func (r *Reader) Skip() error {
	switch r.Type() {
	case ObjectType:
		return r.Object(func([]byte) error { return r.Skip() })
	case ArrayType:
		return r.Array(func() error { return r.Skip() })
	case StringType:
		_, err := r.scanString()
		return err
	case NumberType:
		_, err := r.Number()
		return err
	case BooleanType, NullType:
		return r.literal("true", "false", "null")
	}
	return r.syntax()
}

// SkipLoosely is Skip for a value that others choose and the caller does not use: its objects may have any
// names, however many and however often, and objects and arrays may be nested up to 10,000 levels deep.
func (r *Reader) SkipLoosely() error {
	r.loose = true
	defer func() { r.loose = false }()
	return r.Skip()
}

// End checks that only white space follows.
func (r *Reader) End() error {
	if r.next(); r.pos < len(r.data) {
		return r.fail(ErrTrailing)
	}
	return nil
}

// next skips white space and returns the byte there, or 0 at the end of the text. A zero byte
// in the text is not JSON either, so the two need not be distinguished.
func (r *Reader) next() byte {
	for ; r.pos < len(r.data); r.pos++ {
		if c := r.data[r.pos]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// want checks that the next value has this type.
func (r *Reader) want(want Type) error {
	switch r.Type() {
	case want:
		return nil
	case Invalid:
		return r.syntax()
	}
	return r.fail(ErrType)
}

// literal reads one of these.
func (r *Reader) literal(texts ...string) error {
	for _, text := range texts {
		if bytes.HasPrefix(r.data[r.pos:], []byte(text)) {
			r.pos += len(text)
			return nil
		}
	}
	return r.syntax()
}

// syntax refuses text that is not JSON. A byte order mark has a reason of its own, since people
// cannot see it; so has a page, which servers and proxies send in place of JSON.
func (r *Reader) syntax() error {
	for _, mark := range []string{"\ufeff", "\xff\xfe", "\xfe\xff"} {
		if r.pos == 0 && bytes.HasPrefix(r.data, []byte(mark)) {
			return r.fail(ErrMark)
		}
	}
	if bytes.HasPrefix(r.data[r.pos:], []byte("<")) && len(bytes.Trim(r.data[:r.pos], " \t\r\n")) == 0 {
		return r.fail(ErrPage)
	}
	return r.fail(ErrSyntax)
}

func (r *Reader) fail(reason Reason) error { return &Error{Reason: reason, Offset: r.pos} }

// Number reads a number and returns its text, which shares memory with the input. A number
// whose magnitude exceeds the largest float64 is refused with [ErrRange]: encoding/json
// refuses it too if nothing says which type it should have.
func (r *Reader) Number() ([]byte, error) {
	if err := r.want(NumberType); err != nil {
		return nil, err
	}
	start := r.pos
	r.accept("-")
	if !r.accept("0") && r.digits() == 0 || r.accept(".") && r.digits() == 0 {
		return nil, r.syntax()
	}
	if r.accept("eE") {
		r.accept("+-")
		if r.digits() == 0 {
			return nil, r.syntax()
		}
	}
	text := r.data[start:r.pos:r.pos]
	if _, err := strconv.ParseFloat(string(text), 64); err != nil {
		r.pos = start
		return nil, r.fail(ErrRange)
	}
	return text, nil
}

// Int64 reads an integer between -2^63 and 2^63-1, written without a fraction or an exponent.
// Other numbers are refused with [ErrInteger], even those with the same value.
func (r *Reader) Int64() (int64, error) {
	text, err := r.Number()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		r.pos -= len(text)
		return 0, r.fail(ErrInteger)
	}
	return n, nil
}

// accept skips one of the bytes in set.
func (r *Reader) accept(set string) bool {
	if r.pos == len(r.data) || strings.IndexByte(set, r.data[r.pos]) < 0 {
		return false
	}
	r.pos++
	return true
}

// digits skips decimal digits and returns how many there are.
func (r *Reader) digits() int {
	start := r.pos
	for r.accept("0123456789") {
	}
	return r.pos - start
}

// Reason is why bytes are refused. Its values are constants: match them with
// errors.Is.
type Reason string

// Error returns the reason with the package's prefix.
func (r Reason) Error() string { return "strictjson: " + string(r) }

// The reasons. A caller's own error from a callback passes through unchanged.
const (
	// ErrSyntax: not JSON as defined in RFC 8259.
	ErrSyntax Reason = "syntax"
	// ErrType: JSON, but a value of a type other than the one requested.
	ErrType Reason = "type"
	// ErrUTF8: a string contains bytes that are not UTF-8, or an escaped surrogate without its
	// other half.
	ErrUTF8 Reason = "utf8"
	// ErrDuplicate: a duplicate name in one object.
	ErrDuplicate Reason = "duplicate-name"
	// ErrCase: two names in one object that differ only in case, under Unicode's
	// simple case folding.
	ErrCase Reason = "names-differ-only-in-case"
	// ErrRange: a number that does not fit float64.
	ErrRange Reason = "number-out-of-range"
	// ErrInteger: an int64 is requested, and the number is written with a fraction or an
	// exponent, or does not fit.
	ErrInteger Reason = "not an integer of 64 bits in digits only"
	// ErrMark: the text begins with a byte order mark (RFC 8259, section 8.1), of UTF-8 or of
	// UTF-16.
	ErrMark Reason = "byte order mark or UTF-16"
	// ErrPage: the text begins with <, as HTML and XML do.
	ErrPage Reason = "a web page or XML"
	// ErrDepth: objects and arrays nested deeper than MaxDepth.
	ErrDepth Reason = "depth"
	// ErrMembers: an object with more than MaxMembers members.
	ErrMembers Reason = "too-many-members"
	// ErrTrailing: bytes other than white space after the value.
	ErrTrailing Reason = "trailing-bytes"
)

// Error is a refusal: its reason, and the byte offset at which it was detected.
type Error struct {
	Reason Reason
	Offset int
	// Name is the member in question: the name that is refused for ErrDuplicate and ErrCase,
	// otherwise the innermost member whose value is; empty outside of objects.
	Name string
}

// Error returns reason, offset and name in one line.
func (e *Error) Error() string {
	if e.Name != "" {
		return fmt.Sprintf("%v at byte %d: %.64q", e.Reason, e.Offset, e.Name)
	}
	return fmt.Sprintf("%v at byte %d", e.Reason, e.Offset)
}

// Unwrap lets errors.Is find the reason.
func (e *Error) Unwrap() error { return e.Reason }
