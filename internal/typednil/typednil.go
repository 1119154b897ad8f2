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
