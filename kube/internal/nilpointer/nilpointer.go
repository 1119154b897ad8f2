// Package nilpointer finds the nil pointers that a comparison with nil does not.
package nilpointer

import "reflect"

// Is reports whether an interface holds nothing, or a nil pointer.
func Is(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
