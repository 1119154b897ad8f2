// Package secrettest looks for secrets in the values of a program. The type that holds
// secrets, [secret.Value], is shown in every way by the tests of package secret. So of every
// other type it is enough to know that what it holds of a secret is in one of those: reflection
// finds that out, and [Check] reports what it finds. It is only for tests.
package secrettest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"

	"github.com/nodeattest/nodeattest/secret"
)

// window is how much of a secret must appear in one place to count: a truncated secret is a
// leak too.
const window = 8

// A TB is the part of testing.TB that Check needs: Helper and Errorf.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check fails the test for each secret that v holds outside a [secret.Value], at any depth and
// in fields of both kinds, or that v's own methods write. It also fails if v does not hold the
// secret at all: such a test proves nothing. A secret of less than four bytes, or of one
// repeated byte, is refused, since it would be found by chance. A private key is given by its
// number, big-endian.
func Check(t TB, v any, secrets ...[]byte) {
	t.Helper()
	if len(secrets) == 0 {
		t.Errorf("secrettest: no secret to look for in a %T", v)
	}
	for _, s := range secrets {
		switch {
		case len(s) < 4 || len(partsOf(s)) == 0:
			t.Errorf("secrettest: %q cannot be told from chance", s)
		case !(&search{parts: parts{string(s): true}, size: len(s), inside: true}).finds(v):
			t.Errorf("secrettest: a %T that does not hold the secret %q", v, s)
		default:
			for _, leak := range Leaks(v, s) {
				t.Errorf("secrettest: %T: %s", v, leak)
			}
		}
	}
}

// Leaks returns where v holds a secret outside a [secret.Value], or how its own methods write
// eight consecutive bytes of it: nothing, if v does not.
func Leaks(v any, secrets ...[]byte) []string {
	var leaks []string
	for _, s := range secrets {
		size := min(window, len(s))
		written, digits := partsOf(s), parts{}
		for part := range written {
			digits[hex.EncodeToString([]byte(part))] = true
		}
		if open := (&search{parts: written, size: size}); open.finds(v) {
			leaks = append(leaks, "holds the secret in"+strings.Join(open.path, ""))
		}
		for _, output := range shown(v) {
			if written.in(output, size) || digits.in(bytes.ToLower(output), 2*size) {
				leaks = append(leaks, fmt.Sprintf("shows the secret: %.300q", output))
			}
		}
	}
	return leaks
}

// shown is what v's own methods write: where they do not, the search has seen all there is.
func shown(v any) [][]byte {
	text, _ := json.Marshal(v)
	return [][]byte{fmt.Appendf(nil, "%v", v), fmt.Appendf(nil, "%+v", v), fmt.Appendf(nil, "%#v", v), fmt.Appendf(nil, "%x", v), text}
}

// parts are pieces of a secret, of one size.
type parts map[string]bool

// partsOf returns every eight consecutive bytes of a secret, or the whole of a shorter one,
// but for one repeated byte: that says nothing, and is found everywhere.
func partsOf(secret []byte) parts {
	all := parts{}
	size := min(window, len(secret))
	for n := range len(secret) - size + 1 {
		if part := secret[n : n+size]; len(bytes.Trim(part, string(part[:1]))) > 0 {
			all[string(part)] = true
		}
	}
	return all
}

// in reports whether b has one of the parts, which are of this size.
func (p parts) in(b []byte, size int) bool {
	for n := range len(b) - size + 1 {
		if p[string(b[n:n+size])] {
			return true
		}
	}
	return false
}

// A search looks for parts of a secret in strings, in bytes and in the numbers of package math/big, at
// any depth: everywhere, or outside each secret.Value.
type search struct {
	parts  parts
	size   int             // of each part
	inside bool            // a secret.Value too
	path   []string        // to where it was found
	seen   map[[2]any]bool // by address and type
}

func (s *search) finds(v any) bool {
	s.seen = map[[2]any]bool{}
	return s.in(reflect.ValueOf(v), fmt.Sprintf(" %T", v))
}

// valueType is the generic type secret.Value as reflection knows it.
var valueType = reflect.TypeFor[secret.Value[string]]()

func isValue(t reflect.Type) bool {
	name, _, _ := strings.Cut(t.Name(), "[")
	return t.PkgPath() == valueType.PkgPath() && name == "Value"
}

// in looks in v, which stands at one step of a path.
func (s *search) in(v reflect.Value, step string) bool {
	s.path = append(s.path, step)
	if s.found(v) {
		return true
	}
	s.path = s.path[:len(s.path)-1]
	return false
}

func (s *search) found(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return s.parts.in([]byte(v.String()), s.size)
	case reflect.Pointer:
		at := [2]any{v.Pointer(), v.Type()}
		if v.IsNil() || s.seen[at] {
			return false
		}
		s.seen[at] = true
		return s.in(v.Elem(), "")
	case reflect.Interface:
		return s.in(v.Elem(), "")
	case reflect.Slice, reflect.Array, reflect.Map:
		if s.parts.in(content(v), s.size) {
			return true
		}
		if v.Kind() != reflect.Map && !deep(v.Type().Elem().Kind()) {
			return false
		}
		for key, element := range v.Seq2() {
			if s.in(key, "'s key") || s.in(element, "[]") {
				return true
			}
		}
	case reflect.Struct:
		if isValue(v.Type()) && !s.inside {
			return false
		}
		for field, value := range v.Fields() {
			if s.in(value, "."+field.Name) {
				return true
			}
		}
	}
	return false
}

// deep reports whether a list of this kind can hold more than content sees.
func deep(k reflect.Kind) bool {
	return k >= reflect.Array && k != reflect.UnsafePointer && k != reflect.Func && k != reflect.Chan
}

// content is a list of bytes, or the number whose words a big.Int keeps, big-endian, after as
// many zeros as a secret may begin with; nil for any other list.
func content(v reflect.Value) []byte {
	var b []byte
	var words []big.Word
	for _, element := range v.Seq2() {
		switch element.Kind() {
		case reflect.Uint8:
			b = append(b, byte(element.Uint()))
		case reflect.Uint:
			words = append(words, big.Word(element.Uint()))
		default:
			return nil
		}
	}
	if len(words) > 0 {
		return append(make([]byte, 64), new(big.Int).SetBits(words).Bytes()...)
	}
	return b
}
