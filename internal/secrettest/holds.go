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

func (s *search) in(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Func:
		return !v.IsNil()
	case reflect.String:
		return bytes.Contains([]byte(v.String()), s.secret)
	case reflect.Pointer:
		at := visit{v.Pointer(), v.Type()}
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

// content is a list of bytes, or the number whose words a big.Int keeps, big-endian after
// as many zeros as a secret may begin with; nil of any other list.
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
