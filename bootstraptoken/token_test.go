package bootstraptoken

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

const (
	testID     = "abcdef"
	testSecret = "0123456789abcdef"
	testToken  = testID + "." + testSecret
)

var tokenPattern = regexp.MustCompile(`\A[a-z0-9]{6}\.[a-z0-9]{16}\z`)

func mustParse(t testing.TB, s string) Token {
	t.Helper()
	token, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestParseSaysWhy: the error of a token that a person has copied describes its fault, and
// shows nothing of its secret.
func TestParseSaysWhy(t *testing.T) {
	digest := strings.Repeat("3c", 32)
	for text, want := range map[string]string{
		testToken + "\n":                            "white space, such as a line end",
		" " + testToken:                             "white space",
		testToken + "\r\n":                          "white space",
		"ABCDEF." + testSecret:                      "an ID with capital letters",
		"abcde." + testSecret + "0":                 "no dot after the ID",
		testToken[:7] + strings.ToUpper(testSecret): "a secret with capital letters",
		testToken + "0":                             "24 bytes",
		testSecret + "." + testID:                   "no dot after the ID",
		"K10" + digest + "::" + testToken:           "a token of k3s or RKE2",
		"K10" + digest + "::server:" + testSecret:   "a token of k3s or RKE2",
		"192.0.2.1:25000/" + digest[:32] + "/2c0c":  "a token of MicroK8s",
		digest[:32]:                                 "a token of MicroK8s",
		"H4sIAAAAAAAC/" + digest:                    "a token of k0s",
		"eyJhbGciOiJFUzI1NiJ9." + testSecret + ".":  "a JSON Web Token",
		"sha256:" + digest:                          "the pin of a CA",
		"K10" + digest:                              "67 bytes",
	} {
		if _, err := Parse(text); !errors.Is(err, checkToken) || !strings.Contains(err.Error(), "got "+want) || leaks(err.Error()) || strings.Contains(err.Error(), digest[:8]) {
			t.Errorf("%.7q: got %v, want %s", text, err, want)
		}
	}
}

func TestParse(t *testing.T) {
	for _, s := range []string{testToken, "zzzzzz.zzzzzzzzzzzzzzzz", "000000.0000000000000000", "az09az.az09az09az09az09"} {
		token, err := Parse(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if token.Reveal() != s || token.ID() != s[:6] || string(token.key()) != s[7:] || token.IsZero() {
			t.Errorf("%s reads as %s", s, token.Reveal())
		}
		again, err := New(s[:6], s[7:])
		if err != nil || !again.Equal(token) {
			t.Errorf("New gives %v, %v", again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	refused := []string{
		"", ".", testID, testID + ".", "." + testSecret, testID + testSecret, testID + ":" + testSecret,
		"Abcdef." + testSecret, testID + ".0123456789ABCDEF", testID + ".0123456789abcde", testID + ".0123456789abcdef0",
		"abcde." + testSecret, "abcdefg." + testSecret, "abcde.x" + testSecret, testToken + "\n", " " + testToken, testToken + " ",
		testID + ".." + testSecret[1:], "abc*ef." + testSecret, testID + ".0123456789abcde\n", testID + ".0123456789abcde\x00",
		testID + ".01234567é9abcde", "\u0430bcde." + testSecret, strings.Repeat("a", 1<<20),
	}
	for i := range testToken { // the smallest change of each byte, to its neighbours of the alphabet
		for _, c := range "/:`{A" {
			refused = append(refused, testToken[:i]+string(c)+testToken[i+1:])
		}
	}
	for _, s := range refused {
		if _, err := Parse(s); !errors.Is(err, checkToken) {
			t.Errorf("Parse(%.40q): %v, want %v", s, err, checkToken)
		}
		id, secret, _ := strings.Cut(s, ".")
		if _, err := New(id, secret); (err == nil) != tokenPattern.MatchString(id+"."+secret) {
			t.Errorf("New(%.40q, %.40q): %v", id, secret, err)
		}
	}
}

func TestEqual(t *testing.T) {
	a, b := mustParse(t, testToken), mustParse(t, testToken)
	if !a.Equal(b) || !a.Equal(a) {
		t.Error("a token does not equal itself")
	}
	for _, s := range []string{"abcdeg." + testSecret, testID + ".0123456789abcdeg", testID + ".1123456789abcdef"} {
		if a.Equal(mustParse(t, s)) {
			t.Errorf("%s equals %s", s, testToken)
		}
	}
	if (Token{}).Equal(Token{}) || a.Equal(Token{}) || (Token{}).Equal(a) {
		t.Error("something equals the zero Token")
	}
}

func TestZeroToken(t *testing.T) {
	var zero Token
	if !zero.IsZero() || zero.ID() != "" || zero.Reveal() != "" || zero.key() != nil || zero.String() != "no token" {
		t.Errorf("%q, %q, %q", zero.ID(), zero.Reveal(), zero)
	}
}

// TestAlphabet holds the comparison without branches against one with.
func TestAlphabet(t *testing.T) {
	for c := range 256 {
		want := c >= '0' && c <= '9' || c >= 'a' && c <= 'z'
		if got := inAlphabet(string([]byte{'a', byte(c), '0'})); got != want {
			t.Errorf("%q: %v", byte(c), got)
		}
	}
}

func TestParseAllocations(t *testing.T) {
	if got := testing.AllocsPerRun(100, func() { _, _ = Parse(testToken) }); got > 3 {
		t.Errorf("%v allocations, want an ID, a secret and a pointer", got)
	}
	long := strings.Repeat("a", 1<<20)
	if got := testing.AllocsPerRun(100, func() { _, _ = Parse(long) }); got > 3 {
		t.Errorf("%v allocations for a long text", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{testToken, "", "Abcdef." + testSecret, testToken + "\n", testID + ":" + testSecret, "абвгде." + testSecret} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := Parse(s)
		if (err == nil) != tokenPattern.MatchString(s) {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil {
			if !errors.Is(err, checkToken) || len(s) >= secretSize && strings.Contains(err.Error(), s) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		if token.Reveal() != s || strings.Contains(token.String(), s[idSize+1:]) {
			t.Fatalf("%q reads as %q", s, token.Reveal())
		}
		if id, err := ParseID(s); err != nil || id != token.ID() {
			t.Fatalf("ParseID: %q, %v", id, err)
		}
	})
}

const alphabet = "0123456789abcdefghijklmnopqrstuvwxyz"

func TestGenerate(t *testing.T) {
	seen := make(map[string]bool)
	for range 2000 {
		token := Generate()
		if !tokenPattern.MatchString(token.Reveal()) {
			t.Fatalf("%q", token.Reveal())
		}
		if seen[token.Reveal()] {
			t.Fatalf("%q again", token.Reveal())
		}
		seen[token.Reveal()] = true
	}
}

// TestGenerateIsEven: a byte modulo 36 would draw the first four characters a seventh more
// often, which is fourteen standard deviations here.
func TestGenerateIsEven(t *testing.T) {
	const tokens, deviation = 20000, 110
	drawn := map[rune]int{}
	for range tokens {
		token := Generate()
		for _, c := range token.ID() + string(token.key()) {
			drawn[c]++
		}
	}
	mean := tokens * (idSize + secretSize) / len(alphabet)
	for _, c := range alphabet {
		if n := drawn[c]; n < mean-7*deviation || n > mean+7*deviation {
			t.Errorf("%q is drawn %d times, want about %d", c, n, mean)
		}
	}
}

func TestCharacter(t *testing.T) {
	for i := range alphabet {
		if character(i) != alphabet[i] {
			t.Errorf("%d is %q, want %q", i, character(i), alphabet[i])
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Generate()
	}
}
