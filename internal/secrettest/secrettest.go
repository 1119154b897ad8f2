// Package secrettest looks for secrets in what a program writes about its values. A test gives
// it a value of each type that holds a secret, and the secret. It shows the value in every way
// that puts values into logs, errors and files by accident (package fmt with every verb,
// log/slog, encoding/json, encoding/gob, encoding/xml), by itself and inside other values, and
// finds the secret there in any form in which these packages write bytes. It is only for
// tests.
package secrettest

import (
	"bytes"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// window is how much of a secret must appear in one place to count: a truncated secret is a
// leak too.
const window = 8

// A TB is the part of testing.TB that Check needs: Helper and Errorf.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// Check fails the test for each way in which v shows eight consecutive bytes of one of the
// secrets, or the whole of a shorter one. It also fails if v does not hold the secrets at all,
// as far as reflection can see: such a test proves nothing. A secret of less than four bytes,
// or of one repeated byte, is refused, since it would be found by chance. A private key is
// given by its number, big-endian.
//
// T matters: fmt does not call the methods of a value in an unexported field, so v is also
// put, with its static type, into fields of both kinds, by value and by pointer, into slices,
// arrays, maps and interfaces.
func Check[T any](t TB, v T, secrets ...[]byte) {
	t.Helper()
	if len(secrets) == 0 {
		t.Errorf("secrettest: no secret to look for in a %T", v)
	}
	for _, s := range secrets {
		switch {
		case len(s) < 4 || plain(s):
			t.Errorf("secrettest: %q cannot be told from chance", s)
		case !holds(v, s):
			t.Errorf("secrettest: a %T that does not hold the secret %q", v, s)
		}
	}
	leaks := Leaks(v, secrets...)
	const most = 10
	for n, leak := range leaks {
		if n == most {
			t.Errorf("secrettest: %T: and %d more leaks", v, len(leaks)-most)
			break
		}
		t.Errorf("secrettest: %T: %s", v, leak)
	}
}

// Leaks returns what Check finds: one line for each way in which v shows a secret. A line
// contains what was written, including the secret.
func Leaks[T any](v T, secrets ...[]byte) []string {
	var leaks []string
	for _, s := range shown(v) {
		for _, secret := range secrets {
			if form := find(s.output, secret); form != "" {
				leaks = append(leaks, fmt.Sprintf("%s shows it as %s: %.300q", s.way, form, s.output))
			}
		}
	}
	return leaks
}

// find returns the form in which output contains a part of the secret, or "" if it does not.
func find(output, secret []byte) string {
	for _, r := range readings(output) {
		want := secret
		if r.spaceless {
			want = []byte(strings.NewReplacer(" ", "", "'", "").Replace(string(secret)))
		}
		if holdsPart(r.content, want) {
			return r.form
		}
	}
	return ""
}

func holdsPart(content, secret []byte) bool {
	size := min(window, len(secret))
	if size == 0 {
		return false
	}
	for n := range len(secret) - size + 1 {
		if part := secret[n : n+size]; !plain(part) && bytes.Contains(content, part) {
			return true
		}
	}
	return false
}

// plain reports whether a part is one repeated byte: such a part says nothing, and is found
// everywhere.
func plain(part []byte) bool {
	return len(slices.Compact(slices.Clone(part))) == 1
}

// holds reports whether a secret is somewhere in v: in a string, in bytes, or in a number of
// package math/big, at any depth. It is true if v contains a function, which reflection cannot
// look into.
func holds(v any, secret []byte) bool {
	s := search{secret: secret, seen: map[[2]any]bool{}}
	return s.in(reflect.ValueOf(v))
}

type search struct {
	secret []byte
	seen   map[[2]any]bool // by address and type
}

func (s *search) in(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Func:
		return !v.IsNil()
	case reflect.String:
		return bytes.Contains([]byte(v.String()), s.secret)
	case reflect.Pointer:
		at := [2]any{v.Pointer(), v.Type()}
		if v.IsNil() || s.seen[at] {
			return false
		}
		s.seen[at] = true
		return s.in(v.Elem())
	case reflect.Interface:
		return s.in(v.Elem())
	case reflect.Slice, reflect.Array, reflect.Map:
		if bytes.Contains(content(v), s.secret) {
			return true
		}
		for key, element := range v.Seq2() {
			if s.in(key) || s.in(element) {
				return true
			}
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			if s.in(field) {
				return true
			}
		}
	}
	return false
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
