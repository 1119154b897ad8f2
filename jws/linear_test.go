package jws

import (
	"runtime"
	"strings"
	"testing"
)

// TestLinear bounds what 1 MiB of the worst inputs makes each parser allocate.
func TestLinear(t *testing.T) {
	const size = 1 << 20
	fill := func(before, s, after string) string {
		return before + strings.Repeat(s, (size-len(before)-len(after))/len(s)) + after
	}
	parsers := map[string]func(text string) error{
		"Parse":      func(text string) error { _, err := Parse(text); return err },
		"Parse, cut": func(text string) error { _, err := Parse(text[:MaxTokenSize]); return err },
		"Detached":   func(text string) error { return verifyDetached(text, nil, "abcdef", benchSecret) },
		"ParseJWKS":  func(text string) error { _, err := ParseJWKS([]byte(text)); return err },
	}
	for name, text := range map[string]string{
		"dots":         fill("", ".", ""),
		"letters":      fill("", "A", ""),
		"segments":     fill("", "AAAA.", ""),
		"long header":  fill("", "A", "..A"),
		"brackets":     fill("", "[", ""),
		"empty keys":   fill(`{"keys":[`, "{},", "{}]}"),
		"ignored keys": fill(`{"keys":[`, `{"use":"enc"},`, "{}]}"),
		"bad keys":     fill(`{"keys":[`, `{"kty":"EC","crv":"P-256","x":"AA"},`, "{}]}"),
		"long modulus": fill(`{"keys":[{"kty":"RSA","e":"AQAB","n":"`, "AAAA", `"}]}`),
		"members":      fill(`{"keys":[{`, `"a":1,`, `"a":1}]}`),
		"operations":   fill(`{"keys":[{"kty":"EC","key_ops":[`, `"verify",`, `"verify"]}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			for parser, parse := range parsers {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := parse(text)
				runtime.ReadMemStats(&after)
				if err == nil {
					t.Errorf("%s of %s: accepted", parser, name)
				}
				if got := after.TotalAlloc - before.TotalAlloc; got > 8*size {
					t.Errorf("%s of %s: %d bytes allocated for %d", parser, name, got, len(text))
				}
			}
		})
	}
}
