package secrettest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
	"testing"
)

// recorder is a test that may fail.
type recorder struct{ failures []string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func checked[T any](v T, secrets ...[]byte) []string {
	var r recorder
	Check(&r, v, secrets...)
	return r.failures
}

var (
	text   = []byte("owner pass-1234")
	binary = []byte{0x07, 0xff, 0x80, 0xfe, 0x41, 0x00, 0x9b, 0x0a, 0xc3, 0x28, 0x7f, 0x22, 0x5c, 0xe2, 0x10, 0x99}
)

// hidden keeps what it holds behind two pointers and prints nothing of it.
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

func TestCheckPassesWhatHides(t *testing.T) {
	for _, secret := range [][]byte{text, binary} {
		Check(t, hide(secret), secret)
		Check(t, new(hide(secret)), secret)
		Check(t, struct{ Password hidden }{hide(secret)}, secret)
	}
}

func TestCheckFindsLeaks(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := key.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for name, failures := range map[string][]string{
		"bytes":                   checked(text, text),
		"bytes that do not print": checked(binary, binary),
		"a string":                checked(string(text), text),
		"a binary string":         checked(string(binary), binary),
		"an array":                checked([16]byte(binary), binary),
		"a struct":                checked(struct{ Password []byte }{text}, text),
		"an unexported field":     checked(struct{ password []byte }{text}, text),
		"Format alone":            checked(formatOnly{text}, text),
		"hexadecimal":             checked(hex.EncodeToString(binary), []byte(hex.EncodeToString(binary))),
		"one pointer":             checked(behindOne{&text}, text),
		"a private key":           checked(key, scalar),
		"a number":                checked(new(big.Int).SetBytes(binary), binary),
		"no secret given":         checked(text),
		"a short secret":          checked([]byte("abc"), []byte("abc")),
		"a secret of one byte":    checked(hide(make([]byte, 32)), make([]byte, 32)),
		"a value without it":      checked(hide(text), binary),
	} {
		t.Run(name, func(t *testing.T) {
			if len(failures) == 0 {
				t.Errorf("%s: nothing was found", name)
			}
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
	if leaks := Leaks(struct{ Secret [16]byte }{array}, binary); !strings.Contains(strings.Join(leaks, "\n"), "encoding/gob") {
		t.Error("an array in gob was not found")
	}
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
