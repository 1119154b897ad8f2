package names

import (
	"strings"
	"testing"
)

func TestIsHex(t *testing.T) {
	for s, want := range map[string]bool{
		"0123456789abcdef": true, "": false, "0123456789abcde": false, "0123456789abcdef0": false,
		"0123456789abcdeF": false, "0123456789abcdeg": false, "g123456789abcdef": false, "01234567g9abcdef": false,
		"0123456789abcde\n": false, "0123456789abcd\u00e9": false,
	} {
		if got := IsHex(s, 16); got != want {
			t.Errorf("%q: got %t, want %t", s, got, want)
		}
	}
}

func TestValidText(t *testing.T) {
	for _, c := range []struct {
		name, s string
		want    bool
	}{
		{"empty", "", true}, {"letters", "a-b_c 1", true}, {"other letters", "äß漢", true},
		{"at the size", strings.Repeat("x", 10), true}, {"over the size", strings.Repeat("x", 11), false},
		{"a line break", "a\nb", false}, {"NUL", "a\x00", false}, {"a terminal's escape", "\x1b[0m", false},
		{"not UTF-8", "a\xff", false}, {"text that turns around", "a\u202eb", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ValidText(c.s, 10); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
