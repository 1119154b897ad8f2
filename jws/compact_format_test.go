package jws

import (
	"fmt"
	"strings"
	"testing"
)

// TestTokenIsNotPrinted: no verb shows what a token's holder could use.
func TestTokenIsNotPrinted(t *testing.T) {
	token := &Token{signed: []byte("SECRET.SECRET"), payload: []byte("SECRET"), signature: []byte("SECRET"), algorithm: ES256, keyID: "k"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		got := fmt.Sprintf(verb+" "+verb, token, *token)
		if strings.Contains(got, "SECRET") || strings.Contains(got, "534543") || strings.Contains(got, "83 69") || !strings.Contains(got, "ES256") {
			t.Errorf("%s: %s", verb, got)
		}
	}
}
