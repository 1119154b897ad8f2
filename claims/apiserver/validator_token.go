package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/jws"
)

// untrusted is a token as kube-apiserver reads it before it verifies anything.
type untrusted struct {
	token     string     // as it came
	parsed    *jws.Token // nil where its signature cannot be good
	err       error      // why it is nil
	keyID     string
	issuer    string // as encoding/json reads it; "" where kube-apiserver sees no token
	claims    *claims.Claims
	claimsErr error // why claims is nil
}

// readUntrusted reads a token. kube-apiserver's reader takes some spellings of base64url
// that package jws refuses, and verifies the canonical one in their place: so does this.
func readUntrusted(token string) *untrusted {
	t := &untrusted{token: token}
	t.parsed, t.err = jws.Parse(token)
	if t.err != nil {
		return t.readLoose()
	}
	t.keyID = t.parsed.KeyID()
	t.readClaims(t.parsed.UnverifiedPayload())
	return t
}

// readClaims decodes the claims, and the issuer as the API server looks at it first: by
// encoding/json, where the last "iss" in any case wins.
func (t *untrusted) readClaims(payload []byte) {
	if t.claims, t.claimsErr = claims.Parse(payload); t.claimsErr == nil {
		t.issuer = t.claims.Issuer
		return
	}
	t.claims, t.claimsErr = ParseClaims(payload)
	var first struct {
		Issuer string `json:"iss"`
	}
	if len(payload) > claims.MaxClaimsSize || json.Unmarshal(payload, &first) != nil {
		return
	}
	t.issuer = first.Issuer
}

// readLoose reads a token that jws.Parse refuses, with t.err.
func (t *untrusted) readLoose() *untrusted {
	if len(t.token) > jws.MaxTokenSize || strings.HasPrefix(strings.TrimSpace(t.token), "{") {
		return t
	}
	segments := strings.Split(t.token, ".")
	if len(segments) != 3 {
		return t
	}
	// The payload is first decoded as it stands, then everything without white space.
	if _, err := base64.RawURLEncoding.DecodeString(segments[1]); err != nil {
		return t
	}
	var decoded [3][]byte
	for i, segment := range segments {
		var err error
		if decoded[i], err = base64.RawURLEncoding.DecodeString(withoutSpace(segment)); err != nil {
			return t
		}
		segments[i] = base64.RawURLEncoding.EncodeToString(decoded[i])
	}
	if !t.readHeader(decoded[0]) {
		return t
	}
	t.readClaims(decoded[1])
	if canonical := strings.Join(segments, "."); canonical != t.token {
		t.parsed, t.err = jws.Parse(canonical)
	}
	return t
}

// readHeader reads the key ID out of a header with no member twice, and reports whether
// that could be done. An empty header is one without members to kube-apiserver, so that the
// signature is what it refuses.
func (t *untrusted) readHeader(header []byte) bool {
	if len(header) == 0 {
		return true
	}
	var algorithm string
	return object(member{"alg", text(&algorithm)}, member{"kid", text(&t.keyID)})("the header", header) == nil
}

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}
