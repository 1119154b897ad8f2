package jws

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// sized is text of exactly n bytes in base64url, wherever such a text exists.
func sized(n int) string { return strings.Repeat("A", n) }

// tokenOf is a token of exactly size bytes, with an invalid signature.
func tokenOf(t *testing.T, size int) string {
	t.Helper()
	header := b64(`{"alg":"ES256"}`)
	for signature := range 4 {
		payload := size - len(header) - 2 - signature
		if signature != 1 && payload%4 != 1 {
			return header + "." + sized(payload) + "." + sized(signature)
		}
	}
	t.Fatalf("no token has %d bytes", size)
	return ""
}

// Every size is tried at its maximum and at one more.
func TestLimits(t *testing.T) {
	good := jwksOf(t, forgers()[ES256].key)
	fill := func(text string, size int) []byte { return []byte(text + strings.Repeat(" ", size-len(text))) }
	for _, test := range []struct {
		name string
		most int
		over Check
		read func(size int) error
	}{
		{"token", MaxTokenSize, checkTokenSize, func(n int) error { _, err := Parse(tokenOf(t, n)); return err }},
		{"key ID of a token", MaxKeyIDSize, CheckKeyID, func(n int) error {
			_, err := Parse(b64(`{"alg":"ES256","kid":"`+strings.Repeat("k", n)+`"}`) + "..")
			return err
		}},
		{"set of keys", maxJWKSSize, checkKeySet, func(n int) error { _, err := ParseJWKS(fill(good, n)); return err }},
		{"keys of a response", maxFetchedKeys, checkKeySet, func(n int) error {
			keys := []*Key{forgers()[ES256].key}
			for i := range n - 1 {
				keys = append(keys, named(t, fmt.Sprint(i)))
			}
			return fetched(t, nil, func(r *http.Request) *http.Response { return respond(r, http.StatusOK, jwksOf(t, keys...)) })
		}},
		{"response", maxFetchedSize, checkFetch, func(n int) error {
			return fetched(t, nil, func(r *http.Request) *http.Response {
				return respond(r, http.StatusOK, string(fill(good, n)))
			})
		}},
		{"discovery document", maxDiscoverySize, checkFetch, func(n int) error {
			return fetched(t, func(c *RemoteConfig) { c.JWKSURL, c.Issuer = "", testIssuer }, func(r *http.Request) *http.Response {
				if r.URL.String() == keySetURL {
					return respond(r, http.StatusOK, good)
				}
				return respond(r, http.StatusOK, string(fill(`{"issuer":"`+testIssuer+`","jwks_uri":"`+keySetURL+`"}`, n)))
			})
		}},
		{"redirects", maxRedirects, checkFetch, func(n int) error {
			redirects := 0
			return fetched(t, nil, func(r *http.Request) *http.Response {
				if redirects++; redirects <= n {
					return respond(r, http.StatusFound, "", fmt.Sprintf("Location: %s/%d", keySetURL, redirects))
				}
				return respond(r, http.StatusOK, good)
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.read(test.most); err != nil {
				t.Errorf("%d: %v", test.most, err)
			}
			if err := test.read(test.most + 1); !errors.Is(err, test.over) {
				t.Errorf("%d: got %v, want %v", test.most+1, err, test.over)
			}
		})
	}
}

// fetched fetches once from an issuer that answers so.
func fetched(t *testing.T, change func(*RemoteConfig), answer func(*http.Request) *http.Response) error {
	set, issuer, _ := newRemote(t, change)
	issuer.set(func(r *http.Request) (*http.Response, error) { return answer(r), nil })
	keys, err := set.Keys(t.Context(), "k")
	if err == nil && len(keys) != 1 {
		t.Errorf("%d keys", len(keys))
	}
	return err
}

// The longest token that a signer makes is the longest that Parse reads, to the byte.
func TestCryptoSignerTokenSize(t *testing.T) {
	for n := range 4 { // with one of them the sum is exactly right
		s := newSigner(t, forgers()[EdDSA].signer, SignerOptions{KeyID: strings.Repeat("k", 1+n)})
		rest := MaxTokenSize - len(s.header) - encoding.EncodedLen(64) - 2
		most := encoding.DecodedLen(rest)
		signature, err := s.Sign(t.Context(), bytes.Repeat([]byte("a"), most))
		if err != nil {
			t.Errorf("%d: %v", n, err)
			continue
		}
		token := signature.Token(bytes.Repeat([]byte("a"), most))
		if _, err := Parse(token); err != nil {
			t.Errorf("%d bytes: %v", len(token), err)
		}
		_, err = s.Sign(t.Context(), bytes.Repeat([]byte("a"), most+1))
		refusedFor(t, "a byte more", err, checkPayloadSize)
	}
}

// Keys in memory need no queue, and others have one.
func TestCryptoSignerQueue(t *testing.T) {
	for name, algorithm := range map[string]Algorithm{"RSA": RS256, "ECDSA": ES256, "Ed25519": EdDSA} {
		t.Run(name, func(t *testing.T) {
			private := forgers()[algorithm].signer
			if newSigner(t, private, SignerOptions{}).slot != nil {
				t.Error("a key in memory waits")
			}
			if got := cap(newSigner(t, &device{Signer: private}, SignerOptions{}).slot); got != 1 {
				t.Errorf("a device: %d calls at a time, want 1", got)
			}
		})
	}
}

// The longest modulus and exponent that a JWK may have are read.
func TestJWKLargestRSA(t *testing.T) {
	modulus := "\xc0" + strings.Repeat("\x00", maxRSABits/8-2) + "\x01"
	for _, exponent := range []string{"AQAB", "f____w"} {
		text := `{"kty":"RSA","n":"` + b64(modulus) + `","e":"` + exponent + `"}`
		if _, err := parseJWK([]byte(text)); err != nil {
			t.Errorf("exponent %s: %v", exponent, err)
		}
	}
	_, err := parseJWK([]byte(`{"kty":"RSA","n":"` + b64(modulus+"\x01") + `","e":"AQAB"}`))
	refusedFor(t, "a longer modulus", err, checkKey)
}
