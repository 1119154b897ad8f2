package interop

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
)

// peers judge one ES256 token under one key.
type peers struct {
	private *ecdsa.PrivateKey
	keys    *jws.StaticKeySet
	parser  *jwt.Parser
}

func newPeers(t testing.TB) *peers {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := jws.NewKey(private.Public(), jws.KeyOptions{KeyID: "k"})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := jws.NewStaticKeySet(key)
	if err != nil {
		t.Fatal(err)
	}
	return &peers{private, keys, jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithoutClaimsValidation())}
}

// token is a header and a payload, as they are, under a valid signature.
func (p *peers) token(t testing.TB, header, payload string) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	return p.signed(t, encode([]byte(header))+"."+encode([]byte(payload)))
}

// signed adds the signature of a signing input.
func (p *peers) signed(t testing.TB, input string) string {
	t.Helper()
	digest := sha256.Sum256([]byte(input))
	r, s, err := ecdsa.Sign(rand.Reader, p.private, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// verdict is who accepts a token, and the payload that each found in it.
type verdict struct {
	ours, jose, golang bool
}

func (p *peers) judge(t testing.TB, token string) verdict {
	var v verdict
	verified, err := jws.VerifySignature(t.Context(), token, p.keys)
	v.ours = err == nil
	if parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256}); err == nil {
		payload, err := parsed.Verify(p.private.Public())
		v.jose = err == nil
		if v.ours && v.jose && !bytes.Equal(payload, verified.Payload) {
			t.Fatalf("go-jose reads another payload: %q, ours %q", payload, verified.Payload)
		}
	}
	_, err = p.parser.Parse(token, func(*jwt.Token) (any, error) { return p.private.Public(), nil })
	v.golang = err == nil
	return v
}

const goodHeader = `{"alg":"ES256","kid":"k"}`

// TestLetThrough lists where the three differ, each token under a valid signature. We
// accept nothing here that is not the one good token.
func TestLetThrough(t *testing.T) {
	p := newPeers(t)
	good := p.token(t, goodHeader, `{"sub":"a"}`)
	parts := strings.Split(good, ".")
	for _, tt := range []struct {
		name, token string
		want        verdict
	}{
		{"good", good, verdict{true, true, true}},
		{"unknown header member", p.token(t, `{"alg":"ES256","kid":"k","x":1}`, `{}`), verdict{true, true, true}},
		{"LF in the signature", parts[0] + "." + parts[1] + "." + parts[2][:10] + "\n" + parts[2][10:], verdict{jose: true, golang: true}},
		{"CRLF at the end", good + "\r\n", verdict{jose: true, golang: true}},
		{"LF in the header", p.signed(t, parts[0][:4]+"\n"+parts[0][4:]+"."+parts[1]), verdict{golang: true}},
		{"last bits", parts[0] + "." + parts[1] + "." + otherLastBits(parts[2]), verdict{jose: true, golang: true}},
		{"padding", good + "==", verdict{}},
		{"kid twice", p.token(t, `{"alg":"ES256","kid":"k","kid":"k"}`, `{}`), verdict{golang: true}},
		{"members that differ in case", p.token(t, `{"alg":"ES256","ALG":"none","kid":"k"}`, `{}`), verdict{jose: true, golang: true}},
		{"crit", p.token(t, `{"alg":"ES256","kid":"k","crit":["x"],"x":1}`, `{}`), verdict{golang: true}},
		{"b64 false", p.token(t, `{"alg":"ES256","kid":"k","b64":false}`, `{}`), verdict{golang: true}},
		{"alg none", p.token(t, `{"alg":"none","kid":"k"}`, `{}`), verdict{}},
		{"alg of another key", p.token(t, `{"alg":"ES384","kid":"k"}`, `{}`), verdict{}},
		{"another kid", p.token(t, `{"alg":"ES256","kid":"other"}`, `{}`), verdict{jose: true, golang: true}},
		{"text after the header", p.token(t, goodHeader+` {}`, `{}`), verdict{}},
		{"four parts", good + ".", verdict{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := p.judge(t, tt.token); got != tt.want {
				t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
			}
		})
	}
}

// otherLastBits changes the bits of the last digit that are no part of the data.
func otherLastBits(encoded string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(digits, encoded[len(encoded)-1])
	return encoded[:len(encoded)-1] + digits[last|1:last|1+1]
}

// FuzzToken gives us and both libraries the same headers and payloads under a valid
// signature, and the same texts in place of a whole token. What both refuse we
// refuse.
func FuzzToken(f *testing.F) {
	testkit.BeginFuzz(f)
	p := newPeers(f)
	for _, header := range []string{goodHeader, `{"alg":"ES256"}`, `{"kid":"k","typ":"JWT","alg":"ES256"}`, `{"alg":"none"}`, `{}`, `[]`, ``, `{"alg":"ES256","kid":""}`, "{\"alg\":\"ES256\",\"kid\":\"\\u006b\"}"} {
		f.Add(header, `{"sub":"a"}`, "")
	}
	f.Add(goodHeader, `{"sub":"a"}`, p.token(f, goodHeader, "{}"))
	f.Add(goodHeader, `null`, "a.b.c")
	f.Fuzz(func(t *testing.T, header, payload, token string) {
		if len(token) == 0 {
			token = p.token(t, header, payload)
		}
		// golang-jwt is asked for claims, which we leave to package claims: where the
		// payload is no JSON object it refuses, and go-jose decides.
		if v := p.judge(t, token); v.ours && !v.jose && !v.golang {
			t.Fatalf("we accept what both refuse: %q", token)
		}
	})
}
