// Package typednil finds interface values that are not nil but hold nil.
package typednil

import "reflect"

// Is reports whether v is nil, or an interface holding a nil pointer, function, channel or
// interface: calling one of its methods will in most cases panic.
func Is(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return r.IsNil()
	}
	return false
}

// OrZero returns p, or a zero value if it is nil: for methods that refuse the zero value of
// their type, and a nil pointer like it.
func OrZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}
