package nilpointer

import "testing"

func TestIs(t *testing.T) {
	for name, row := range map[string]struct {
		v    any
		want bool
	}{"nothing": {nil, true}, "a nil pointer": {(*int)(nil), true}, "a pointer": {new(int), false}, "a value": {0, false}} {
		if got := Is(row.v); got != row.want {
			t.Errorf("%s: %t, want %t", name, got, row.want)
		}
	}
}
