package secrettest

import (
	"bytes"
	"math/big"
	"reflect"
)

// holds reports whether a secret is somewhere in v: in a string, in bytes, or in a
// number of package math/big, however deep. It is true where v has a function in it,
// which reflection cannot look into.
func holds(v any, secret []byte) bool {
	s := search{secret: secret, seen: map[visit]bool{}}
	return s.in(reflect.ValueOf(v))
}

type search struct {
	secret []byte
	seen   map[visit]bool
}

type visit struct {
	pointer uintptr
	kind    reflect.Type
}

var bigInt = reflect.TypeFor[big.Int]()

func (s *search) in(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Func:
		return !v.IsNil()
	case reflect.String:
		return bytes.Contains([]byte(v.String()), s.secret)
	case reflect.Pointer:
		if v.IsNil() || s.seen[visit{v.Pointer(), v.Type()}] {
			return false
		}
		s.seen[visit{v.Pointer(), v.Type()}] = true
		return s.in(v.Elem())
	case reflect.Interface:
		return s.in(v.Elem())
	case reflect.Slice, reflect.Array:
		return s.inList(v)
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if s.in(it.Key()) || s.in(it.Value()) {
				return true
			}
		}
	case reflect.Struct:
		if v.Type() == bigInt && bytes.Contains(number(v), bytes.TrimLeft(s.secret, "\x00")) {
			return true
		}
		for _, field := range v.Fields() {
			if s.in(field) {
				return true
			}
		}
	}
	return false
}

func (s *search) inList(v reflect.Value) bool {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		b := make([]byte, v.Len())
		for n := range b {
			b[n] = byte(v.Index(n).Uint())
		}
		return bytes.Contains(b, s.secret)
	}
	for n := range v.Len() {
		if s.in(v.Index(n)) {
			return true
		}
	}
	return false
}

// number is the big-endian bytes of a big.Int, whose words may stand in an unexported
// field.
func number(v reflect.Value) []byte {
	words := v.FieldByName("abs")
	abs := make([]big.Word, words.Len())
	for n := range abs {
		abs[n] = big.Word(words.Index(n).Uint())
	}
	return new(big.Int).SetBits(abs).Bytes()
}
