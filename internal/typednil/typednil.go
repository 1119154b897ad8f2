// Package typednil finds the interface values that are not nil and hold nothing.
package typednil

import "reflect"

// Is reports whether v is nil, or a nil pointer, function, channel or interface in an
// interface: calling a method of it ends, in most cases, in a panic.
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
