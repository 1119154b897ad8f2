package bootstraptoken

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

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

// TestGenerateIsEven gives every byte once: each character is then drawn seven times, and
// the four bytes that would favour the first four are not used.
func TestGenerateIsEven(t *testing.T) {
	next := 0
	every := func(b []byte) error {
		for i := range b {
			b[i] = byte(next)
			next++
		}
		return nil
	}
	text, err := randomText(every, 252)
	if err != nil || next != 256 {
		t.Fatalf("%d bytes drawn, %v", next, err)
	}
	for _, c := range alphabet {
		if n := strings.Count(text, string(c)); n != 7 {
			t.Errorf("%q is drawn %d times of 252, want 7", c, n)
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

// TestGenerateDrawsAgain: only the bytes below 252 count, wherever they come.
func TestGenerateDrawsAgain(t *testing.T) {
	random := bytes.NewReader(append(bytes.Repeat([]byte{252, 253, 254, 255}, 16), bytes.Repeat([]byte{255, 35, 251, 0}, 32)...))
	token, err := generate(func(b []byte) error { _, err := random.Read(b); return err })
	if err != nil || token.Reveal() != "zz0zz0.zz0zz0zz0zz0zz0z" {
		t.Fatalf("%q, %v", token.Reveal(), err)
	}
}

func TestGenerateFails(t *testing.T) {
	broken := errors.New("broken")
	for calls := range 2 {
		token, err := generate(func(b []byte) error {
			if calls == 0 {
				return broken
			}
			calls--
			for i := range b {
				b[i] = 255 // drawn again
			}
			return nil
		})
		if !errors.Is(err, broken) || !token.IsZero() {
			t.Errorf("%q, %v", token.Reveal(), err)
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Generate()
	}
}
