package typednil

import "testing"

func TestOrZero(t *testing.T) {
	n := 7
	if p := OrZero(&n); p != &n {
		t.Errorf("got %p, want the same", p)
	}
	if p := OrZero[int](nil); p == nil || *p != 0 {
		t.Errorf("got %v for nil", p)
	}
}

func TestIs(t *testing.T) {
	n := 1
	for _, c := range []struct {
		name string
		v    any
		want bool
	}{
		{"nil", nil, true}, {"nil pointer", (*int)(nil), true}, {"nil function", (func())(nil), true}, {"nil channel", (chan int)(nil), true},
		{"pointer", &n, false}, {"function", func() {}, false}, {"value", n, false}, {"nil map", map[int]int(nil), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Is(c.v); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
