package secret_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"iter"
	"math/big"
	"strings"
	"testing"
)

// window is how much of a secret must appear in one place to count: a truncated secret is a
// leak too.
const window = 8

// leaks yields one line for each way in which v shows eight consecutive bytes of a secret.
// A line contains the written text, including the secret.
//
// T matters: fmt does not call the methods of a value in an unexported field, so v is also
// put, with its static type, into fields of both kinds, by value and by pointer, into slices,
// arrays, maps and interfaces.
func leaks[T any](v T, secret []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, s := range shown(v) {
			if form := find(s.output, secret); form != "" && !yield(fmt.Sprintf("%s shows it as %s: %.300q", s.way, form, s.output)) {
				return
			}
		}
	}
}

// find returns the form in which output contains a part of the secret, or "" if it does not.
func find(output, secret []byte) string {
	for _, r := range readings(output) {
		want := secret
		if r.spaceless {
			want = []byte(strings.NewReplacer(" ", "", "'", "").Replace(string(secret)))
		}
		if holdsPart(r.content, want) {
			return r.form
		}
	}
	return ""
}

func holdsPart(content, secret []byte) bool {
	size := min(window, len(secret))
	for n := range len(secret) - size + 1 {
		part := secret[n : n+size]
		if len(bytes.TrimLeft(part, string(part[:1]))) > 0 && bytes.Contains(content, part) {
			return true // a repeated byte says nothing, and is found everywhere
		}
	}
	return false
}

var (
	text   = []byte("owner pass-1234")
	binary = []byte{0x07, 0xff, 0x80, 0xfe, 0x41, 0x00, 0x9b, 0x0a, 0xc3, 0x28, 0x7f, 0x22, 0x5c, 0xe2, 0x10, 0x99}
)

// hidden keeps its value behind two pointers and prints nothing of it.
type hidden struct{ p **[]byte }

func hide(b []byte) hidden {
	p := &b
	return hidden{&p}
}

// behindOne is hidden with one pointer: in an unexported field, fmt follows it where a
// verb does not fit.
type behindOne struct{ p *[]byte }

func (behindOne) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte("hidden")) }
func (behindOne) MarshalText() ([]byte, error) { return []byte("hidden"), nil }

func (hidden) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte("hidden")) }
func (hidden) MarshalText() ([]byte, error) { return []byte("hidden"), nil }

// formatOnly hides itself from fmt, where fmt asks.
type formatOnly struct{ Secret []byte }

func (formatOnly) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("hidden")) }

func TestLeaksOfWhatHides(t *testing.T) {
	for _, secret := range [][]byte{text, binary} {
		for leak := range leaks(hide(secret), secret) {
			t.Error(leak)
		}
	}
}

func TestLeaksFindsLeaks(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for name, found := range map[string]iter.Seq[string]{
		"bytes":                   leaks(text, text),
		"bytes that do not print": leaks(binary, binary),
		"a string":                leaks(string(text), text),
		"a binary string":         leaks(string(binary), binary),
		"an array":                leaks([16]byte(binary), binary),
		"a struct":                leaks(struct{ Password []byte }{text}, text),
		"an unexported field":     leaks(struct{ password []byte }{text}, text),
		"Format alone":            leaks(formatOnly{text}, text),
		"hexadecimal":             leaks(hex.EncodeToString(binary), []byte(hex.EncodeToString(binary))),
		"one pointer":             leaks(behindOne{&text}, text),
		"a private key":           leaks(key, scalar),
		"a number":                leaks(new(big.Int).SetBytes(binary), binary),
	} {
		t.Run(name, func(t *testing.T) {
			for range found {
				return
			}
			t.Errorf("%s: nothing was found", name)
		})
	}
}

// Each way of writing bytes is found by itself: no other one makes up for it.
func TestEachFormIsFound(t *testing.T) {
	array := [16]byte(binary)
	for _, secret := range [][]byte{text, binary} {
		for name, output := range map[string]string{
			"raw":                "x" + string(secret) + "x",
			"cut":                string(secret[:8]),
			"%v":                 fmt.Sprintf("%v", secret),
			"%d in a struct":     fmt.Sprintf("%d", struct{ b []byte }{secret}),
			"%#v":                fmt.Sprintf("%#v", secret),
			"%x":                 fmt.Sprintf("%x", secret),
			"%x behind a digit":  fmt.Sprintf("a%x", secret),
			"%X":                 fmt.Sprintf("%X", secret),
			"% x":                fmt.Sprintf("% x", secret),
			"%# x":               fmt.Sprintf("%# x", secret),
			"%q":                 fmt.Sprintf("%q", secret),
			"%+q":                fmt.Sprintf("%+q", secret),
			"%q of numbers":      fmt.Sprintf("%q", runes(secret)),
			"%c":                 fmt.Sprintf("%c", runes(secret)),
			"%U":                 fmt.Sprintf("%U", runes(secret)),
			"%o":                 fmt.Sprintf("%o", secret),
			"%O":                 fmt.Sprintf("%O", secret),
			"%#o":                fmt.Sprintf("%#o", secret),
			"%b":                 fmt.Sprintf("%b", secret),
			"%e":                 format("e", secret),
			"%t":                 format("t", secret),
			"base64":             base64.StdEncoding.EncodeToString(secret),
			"base64, moved by 1": base64.StdEncoding.EncodeToString(append([]byte("a"), secret...)),
			"base64, moved by 2": base64.RawURLEncoding.EncodeToString(append([]byte("ab"), secret...)),
			"a decimal number":   new(big.Int).SetBytes(secret).String(),
			"a JSON list":        strings.ReplaceAll(fmt.Sprint(secret), " ", ","),
			"quoted twice":       fmt.Sprintf("%q", fmt.Sprintf("%q", secret)),
		} {
			if find([]byte(output), secret) == "" {
				t.Errorf("%s: not found in %s", name, output)
			}
		}
	}
	for leak := range leaks(struct{ Secret [16]byte }{array}, binary) {
		if strings.Contains(leak, "encoding/gob") {
			return
		}
	}
	t.Error("an array in gob was not found")
}

func TestNothingIsFoundWhereNothingIs(t *testing.T) {
	for _, secret := range [][]byte{text, binary, bytes.Repeat([]byte{0}, 32)} {
		for _, output := range []string{"", "x", "0", strings.Repeat("0", 200), strings.Repeat("A", 200), "[]", "0x", "U+00", `\`, `\x`, "=", "uint8", strings.Repeat("\xff", 20)} {
			if form := find([]byte(output), secret); form != "" {
				t.Errorf("%q was found in %q as %s", secret, output, form)
			}
		}
	}
}

// format prints with a verb that vet would complain of.
func format(verb string, v any) string { return string(fmt.Appendf(nil, "%"+verb, v)) }

func runes(b []byte) []rune {
	out := make([]rune, len(b))
	for n, c := range b {
		out[n] = rune(c)
	}
	return out
}
