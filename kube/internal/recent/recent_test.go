package recent

import "testing"

// TestMap keeps the entries that were put last, and no more than two generations.
func TestMap(t *testing.T) {
	const size = 4
	m := New[int, string](size)
	m.Put(-1, "first")
	for i := range 10 * size {
		if got := m.Keep(0, func() string { return "kept" }); got != "kept" {
			t.Fatalf("kept: got %q", got)
		}
		if value, ok := m.Get(-1); ok != (value == "first") || i < size-2 && !ok || i >= 2*size && ok {
			t.Fatalf("%d entries later: %q, %t", i, value, ok)
		}
		m.Put(i+1, "")
		if n := len(m.young) + len(m.old); n > 2*size {
			t.Fatalf("%d entries", n)
		}
	}
	if m.Keep(0, func() string { return "created again" }) != "kept" {
		t.Error("an entry that was used all the time is gone")
	}
}
