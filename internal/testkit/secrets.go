package testkit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/secret"
)

// window is how much of a secret must appear in one place to count: a truncated secret is a
// leak too.
const window = 8

// A TB is the part of testing.TB that CheckSecrets needs: Helper and Errorf.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
}

// CheckSecrets fails the test for each secret that v holds outside a [secret.Value], at any depth and
// in fields of both kinds, or that v's own methods write. It also fails if v does not hold the
// secret at all: such a test proves nothing. A secret of less than four bytes, or of one
// repeated byte, is refused, since it would be found by chance. A private key is given by its
// number, big-endian.
func CheckSecrets(t TB, v any, secrets ...[]byte) {
	t.Helper()
	if len(secrets) == 0 {
		t.Errorf("CheckSecrets: no secret to look for in a %T", v)
	}
	for _, s := range secrets {
		switch {
		case len(s) < 4 || len(partsOf(s)) == 0:
			t.Errorf("CheckSecrets: %q cannot be told from chance", s)
		case holds(v, true, s) == nil:
			t.Errorf("CheckSecrets: a %T that does not hold the secret %q", v, s)
		default:
			for _, leak := range SecretLeaks(v, s) {
				t.Errorf("CheckSecrets: %T: %s", v, leak)
			}
		}
	}
}

// SecretLeaks returns where v holds a secret outside a [secret.Value], or how its own methods write
// eight consecutive bytes of it: nothing, if v does not.
func SecretLeaks(v any, secrets ...[]byte) []string {
	var leaks []string
	text, _ := json.Marshal(v)
	shown := [][]byte{fmt.Appendf(nil, "%v", v), fmt.Appendf(nil, "%+v", v), fmt.Appendf(nil, "%#v", v), fmt.Appendf(nil, "%x", v), text}
	for _, s := range secrets {
		parts := partsOf(s)
		for _, path := range holds(v, false, parts...) {
			leaks = append(leaks, "holds the secret in "+path)
		}
		for _, output := range shown { // where no method writes it, the search has seen all there is
			if contains(output, parts) {
				leaks = append(leaks, fmt.Sprintf("shows the secret: %.300q", output))
			}
		}
	}
	return leaks
}

// partsOf returns every eight consecutive bytes of a secret, or the whole of a shorter one,
// as they are and in hexadecimal, but for one repeated byte: that says nothing, and is found
// everywhere.
func partsOf(secret []byte) (parts [][]byte) {
	size := min(window, len(secret))
	for n := range len(secret) - size + 1 {
		if part := secret[n : n+size]; len(bytes.Trim(part, string(part[:1]))) > 0 {
			parts = append(parts, part, hex.AppendEncode(nil, part))
		}
	}
	return parts
}

// contains reports whether b has one of the parts, whatever the case of its digits.
func contains(b []byte, parts [][]byte) bool {
	lower := bytes.ToLower(b)
	return slices.ContainsFunc(parts, func(part []byte) bool { return bytes.Contains(b, part) || bytes.Contains(lower, part) })
}

// holds returns the paths to what contains one of the parts, at any depth of v: everywhere, or
// outside each secret.Value.
func holds(v any, inside bool, parts ...[]byte) (paths []string) {
	seen := map[[2]any]bool{} // pointers, by address and type
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if b := content(v); b != nil {
			if contains(b, parts) {
				paths = append(paths, path)
			}
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if at := [2]any{v.Pointer(), v.Type()}; !seen[at] {
				seen[at] = true
				walk(v.Elem(), path)
			}
		case reflect.Interface:
			walk(v.Elem(), path)
		case reflect.Slice, reflect.Array, reflect.Map:
			for key, element := range v.Seq2() {
				walk(key, path+"'s key")
				walk(element, path+"[]")
			}
		case reflect.Struct:
			if isValue(v.Type()) && !inside {
				return
			}
			for field, value := range v.Fields() {
				walk(value, path+"."+field.Name)
			}
		}
	}
	walk(reflect.ValueOf(v), fmt.Sprintf("%T", v))
	return paths
}

// isValue reports whether a type is one of the generic type secret.Value.
func isValue(t reflect.Type) bool {
	return t.PkgPath() == reflect.TypeFor[secret.Value[string]]().PkgPath() && strings.HasPrefix(t.Name(), "Value[")
}

// content is a string, a list of bytes, or the number whose words a big.Int keeps, big-endian,
// after as many zeros as a secret may begin with; nil for anything else.
func content(v reflect.Value) (b []byte) {
	switch v.Kind() {
	case reflect.String:
		return []byte(v.String())
	case reflect.Slice, reflect.Array:
		var words []big.Word
		for _, element := range v.Seq2() {
			switch element.Kind() {
			case reflect.Uint8:
				b = append(b, byte(element.Uint()))
			case reflect.Uint:
				words = append(words, big.Word(element.Uint()))
			default:
				return nil
			}
		}
		if words != nil {
			return append(make([]byte, 64), new(big.Int).SetBits(words).Bytes()...)
		}
	}
	return b
}
