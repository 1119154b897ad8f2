package refusal_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/refusal"
)

const check refusal.Check = "some-check"

func TestError(t *testing.T) {
	tests := []struct {
		name string
		err  *refusal.Error
		want string
	}{
		{"nil", nil, "an error that is nil"},
		{"check alone", &refusal.Error{Check: check}, "some-check"},
		{"got", &refusal.Error{Check: check, Got: "a"}, "some-check: got a"},
		{"want", &refusal.Error{Check: check, Want: "b"}, "some-check: got nothing, want b"},
		{"cause", &refusal.Error{Check: check, Err: io.EOF}, "some-check: EOF"},
		{"all", &refusal.Error{Check: check, Got: "a", Want: "b", Err: io.EOF}, "some-check: got a, want b: EOF"},
		{"a forged line", &refusal.Error{Check: check, Got: "a\nlevel=INFO msg=approved"}, `some-check: got a\nlevel=INFO msg=approved`},
		{"a terminal's controls", &refusal.Error{Check: check, Want: "\x1b[2J"}, `some-check: got nothing, want \x1b[2J`},
		{"a cause with line ends", &refusal.Error{Check: check, Err: errors.New("a\r\nb")}, `some-check: a\r\nb`},
		{"a check with line ends", &refusal.Error{Check: "a\nb"}, `a\nb`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.err.Error(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUnwrap(t *testing.T) {
	var none *refusal.Error
	if none.Unwrap() != nil {
		t.Error("a nil error has causes")
	}
	err := fmt.Errorf("outer: %w", &refusal.Error{Check: check, Err: io.EOF})
	if !errors.Is(err, check) || !errors.Is(err, io.EOF) || errors.Is(err, refusal.ErrRetry) {
		t.Errorf("%v: its check and its cause are not what errors.Is finds", err)
	}
	if err := check.Refuse("a", "b"); !errors.Is(err, check) || err.Error() != "some-check: got a, want b" {
		t.Errorf("Refuse: got %v", err)
	}
	if err := error(&refusal.Error{Check: check}); !errors.Is(err, check) || errors.Is(err, io.EOF) {
		t.Errorf("%v: its check is not what errors.Is finds", err)
	}
}

func TestReason(t *testing.T) {
	var none *refusal.Error
	for want, e := range map[string]*refusal.Error{
		"":             none,
		"HelloExpired": {Check: "hello-expired"},
		"Magic":        {Check: "magic"},
		"AB":           {Check: "-a--b-"},
	} {
		t.Run(want, func(t *testing.T) {
			if got := e.Reason(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	if err := refusal.Retry(nil); err != nil {
		t.Errorf("no cause: got %v, want nil", err)
	}
	err := refusal.Retry(&refusal.Error{Check: check, Err: io.EOF})
	if !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, check) || !errors.Is(err, io.EOF) {
		t.Errorf("%v: not a retry with its cause", err)
	}
}

func TestConfig(t *testing.T) {
	tests := []struct{ name, field, got, want, text string }{
		{"absent", "Roots", "", "at least one", "configuration: got no Roots, want at least one"},
		{"wrong", "Limit", "-1", "1 to 8", "configuration: got Limit -1, want 1 to 8"},
		{"a forged line", "Name", "a\nb", "", `configuration: got Name a\nb`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := refusal.Config(tt.field, tt.got, tt.want)
			if !errors.Is(err, refusal.CheckConfig) || errors.Is(err, refusal.ErrRetry) || err.Error() != tt.text {
				t.Errorf("got %v, want %s", err, tt.text)
			}
		})
	}
}

func TestText(t *testing.T) {
	long := strings.Repeat("a", refusal.MaxText)
	tests := []struct{ name, in, want string }{
		{"empty", "", ""},
		{"plain", "node-1", "node-1"},
		{"letters of other alphabets", "кот", "кот"},
		{"line end", "a\nb", `a\nb`},
		{"bell", "\a", `\a`},
		{"delete", "\x7f", `\x7f`},
		{"C1 control", "\u009b", `\u009b`},
		{"override of the direction", "\u202e", `\u202e`},
		{"line separator", "\u2028", `\u2028`},
		{"not UTF-8", "a\xffb", `a\xffb`},
		{"the replacement character", "\ufffd", `\ufffd`},
		{"the longest", long, long},
		{"one more", long + "a", long + "..."},
		{"a character across the end", long[1:] + "é", long[1:] + "..."},
		{"an escape across the end", long[1:] + "\n", long[1:] + "..."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := refusal.Text(tt.in)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if again := refusal.Text(got); again != got {
				t.Errorf("shown again: got %q, want %q", again, got)
			}
		})
	}
}

// TestTextOfEachCharacter: what shows nothing, or moves what others show, does not pass.
func TestTextOfEachCharacter(t *testing.T) {
	passed, invisible := 0, 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		text := refusal.Text("a" + string(r) + "b")
		hidden := unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Co, unicode.Zl, unicode.Zp, unicode.Bidi_Control,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == '\u2800' || r == '\U0001d159' || r == utf8.RuneError
		if refusal.Text(text) != text {
			t.Errorf("%U: %q is not the text of itself", r, text)
		}
		switch {
		case text != "a"+string(r)+"b":
		case hidden:
			invisible++
		default:
			passed++
		}
	}
	if invisible > 0 || passed < 100_000 {
		t.Errorf("%d characters pass that show nothing, %d that do", invisible, passed)
	}
}

// TestFormat: no verb prints the fields as they are, of a pointer or of a value.
func TestFormat(t *testing.T) {
	e := refusal.Error{Check: check, Got: "a\nb\x1b[2J", Err: errors.New("c\rd")}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		value, pointer := fmt.Sprintf(verb, e), fmt.Sprintf(verb, &e)
		if value != pointer || strings.ContainsAny(value, "\n\r\x1b") || !strings.Contains(value, "some-check: got a") {
			t.Errorf("%s: %q, of a pointer %q", verb, value, pointer)
		}
	}
	if got := fmt.Sprintf("%60v|", e); len(got) != 61 {
		t.Errorf("%q has no width", got)
	}
}

// TestTextReadsWhatItShows holds the cost of a huge text to that of a short one.
func TestTextReadsWhatItShows(t *testing.T) {
	huge := strings.Repeat("\n", 64<<20)
	if n := testing.AllocsPerRun(10, func() { refusal.Text(huge) }); n > 600 {
		t.Errorf("%v allocations for a text of %d bytes", n, len(huge))
	}
}

func TestEscape(t *testing.T) {
	long := strings.Repeat("\n", refusal.MaxCause)
	if got, want := refusal.Escape(long), strings.Repeat(`\n`, refusal.MaxCause); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	if got := refusal.Escape("кот\u202e"); got != `кот\u202e` {
		t.Errorf("got %q", got)
	}
}

func TestErrorIsBounded(t *testing.T) {
	err := errors.New(strings.Repeat("\x00", 1<<20))
	for range 50 {
		err = &refusal.Error{Check: check, Got: strings.Repeat("x", 1<<20), Want: strings.Repeat("y", 1<<20), Err: err}
	}
	if n := len(err.Error()); n > refusal.MaxCause+2*refusal.MaxText+100 {
		t.Errorf("an error of %d bytes", n)
	}
}

func TestHex(t *testing.T) {
	for n, want := range map[int]string{
		0:                     "",
		1:                     "ab",
		refusal.MaxText / 2:   strings.Repeat("ab", refusal.MaxText/2),
		refusal.MaxText/2 + 1: strings.Repeat("ab", refusal.MaxText/2) + "...",
		100 * refusal.MaxText: strings.Repeat("ab", refusal.MaxText/2) + "...",
	} {
		b := []byte(strings.Repeat("\xab", n))
		if got := refusal.Hex(b); got != want {
			t.Errorf("%d bytes: got %q, want %q", n, got, want)
		}
	}
}

func TestQuote(t *testing.T) {
	long := strings.Repeat("a", refusal.MaxQuoted)
	for in, want := range map[string]string{
		"":                            `""`,
		"a\"b\n":                      `"a\"b\n"`,
		"\xff":                        `"\xff"`,
		"é":                           `"\u00e9"`,
		long:                          `"` + long + `"`,
		long + "b":                    `"` + long + `"... (81 bytes)`,
		"b" + strings.Repeat("é", 40): `"b` + strings.Repeat(`\u00e9`, 39) + `"... (81 bytes)`,
	} {
		t.Run(in, func(t *testing.T) {
			if got := refusal.Quote(in); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestQuotes(t *testing.T) {
	eight := []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	shown := `"1", "2", "3", "4", "5", "6", "7", "8"`
	for want, in := range map[string][]string{
		"":                  nil,
		`"a"`:               {"a"},
		shown:               eight,
		shown + ", ... (9)": append(eight[:8:8], "9"),
	} {
		t.Run(want, func(t *testing.T) {
			if got := refusal.Quotes(in); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestOrNothing(t *testing.T) {
	if got := refusal.OrNothing("") + refusal.OrNothing("x"); got != "nothingx" {
		t.Errorf("got %q", got)
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a\nb", "\x1b]0;x\a", "\xff\xfe", strings.Repeat("\u202e", 100), strings.Repeat("a", 300)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := refusal.Text(s)
		if len(got) > refusal.MaxText+3 || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			t.Errorf("Text(%q) = %q", s, got)
		}
		if again := refusal.Text(got); again != got {
			t.Errorf("Text(%q) = %q, and of that %q", s, got, again)
		}
		if _, err := fmt.Sscanf(refusal.Quote(s), "%q", new(string)); err != nil {
			t.Errorf("Quote(%q) = %s: %v", s, refusal.Quote(s), err)
		}
	})
}

func ExampleError() {
	err := fmt.Errorf("node-1: %w", &refusal.Error{Check: "magic", Got: "00000000", Want: "ff544347"})

	var refused *refusal.Error
	fmt.Println(err)
	fmt.Println(errors.As(err, &refused), refused.Reason(), errors.Is(err, refusal.ErrRetry))
	fmt.Println(errors.Is(refusal.Retry(err), refusal.ErrRetry))
	// Output:
	// node-1: magic: got 00000000, want ff544347
	// true Magic false
	// true
}

// Quotes of two long values show the difference, wherever it is.
func TestQuoteApart(t *testing.T) {
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
			got, want := refusal.QuoteApart(c.got, c.want, nil)
			if got == want || !strings.Contains(got, c.gotText) || !strings.Contains(want, c.wantText) || len(got)+len(want) > 1000 {
				t.Errorf("%s\n%s", got, want)
			}
		})
	}
	if got, want := refusal.QuoteApart(long+"A1"+long, long+"a2"+long, strings.ToLower); !strings.Contains(got, "aA1aa") || !strings.Contains(want, "aa2aa") {
		t.Errorf("%s\n%s", got, want)
	}
}
