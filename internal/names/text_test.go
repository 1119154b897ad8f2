package names

import (
	"strings"
	"testing"
)

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

// Whoever reads the error sees in what two long texts differ, wherever that is.
func TestApart(t *testing.T) {
	long, letters := strings.Repeat("a", 500), strings.Repeat("\u00e4", 300)
	for name, c := range map[string]struct{ got, want, gotText, wantText string }{
		"short ones":      {"x:a", "x:b", `"x:a"`, `"x:b"`},
		"an empty one":    {"", "x:b", `""`, `"x:b"`},
		"at the end":      {"x:" + long + "/0", "x:" + long + "/1", "aaa/0\"", "aaa/1\""},
		"in the middle":   {"x:" + long + "/1/" + long, "x:" + long + "/2/" + long, "aa/1/aa", "aa/2/aa"},
		"at the start":    {"x:" + long, "y:" + long, "\"x:aa", "\"y:aa"},
		"one is longer":   {"x:" + long, "x:" + long + "/2", "aaa\"", "aaa/2\""},
		"case":            {"x:" + long + "a" + long, "x:" + long + "A" + long, "aaa", "aAa"},
		"within a letter": {letters + "1", letters + "2", `\u00e41"`, `\u00e42"`},
		"no UTF-8":        {long + "\xff", long + "\xfe", `a\xff"`, `a\xfe"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, want := Apart(c.got, c.want, nil)
			if got == want || !strings.Contains(got, c.gotText) || !strings.Contains(want, c.wantText) || len(got)+len(want) > 1000 {
				t.Errorf("%s\n%s", got, want)
			}
		})
	}
	if got, want := Apart(long+"A1"+long, long+"a2"+long, strings.ToLower); !strings.Contains(got, "aA1aa") || !strings.Contains(want, "aa2aa") {
		t.Errorf("%s\n%s", got, want)
	}
}
