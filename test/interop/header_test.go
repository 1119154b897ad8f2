package interop

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/base64"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	josev2 "gopkg.in/go-jose/go-jose.v2"
	jwtv2 "gopkg.in/go-jose/go-jose.v2/jwt"

	"github.com/nodeattest/nodeattest/jws"
)

// byKubernetes reads a token as kube-apiserver does (pkg/serviceaccount/jwt.go,
// AuthenticateToken), whose release 1.36 has version 2 of go-jose.
func byKubernetes(token string, public *ecdsa.PublicKey) ([]byte, error) {
	if _, err := jwtv2.ParseSigned(token); err != nil {
		return nil, err
	}
	parsed, err := josev2.ParseSigned(token)
	if err != nil {
		return nil, err
	}
	return parsed.Verify(public)
}

// byJose reads it as version 4 of go-jose does.
func byJose(token string, public *ecdsa.PublicKey) ([]byte, error) {
	parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, err
	}
	return parsed.Verify(public)
}

// noLooser fails where we accept a token that one of the two refuses, or that it reads
// another payload from. It reports whether we accept it.
func (p *peers) noLooser(t *testing.T, token string) bool {
	t.Helper()
	verified, err := jws.VerifySignature(t.Context(), token, p.keys)
	if err != nil {
		return false
	}
	for name, read := range map[string]func(string, *ecdsa.PublicKey) ([]byte, error){
		"go-jose v2": byKubernetes, "go-jose v4": byJose,
	} {
		payload, err := read(token, &p.private.PublicKey)
		if err != nil || !bytes.Equal(payload, verified.Payload) {
			header, _, _ := strings.Cut(token, ".")
			text, _ := base64.RawURLEncoding.DecodeString(header)
			t.Fatalf("we accept the header %q, %s: %q, %v", text, name, payload, err)
		}
	}
	return true
}

// headerMembers are members that readers treat differently, good and bad.
var headerMembers = []string{
	`"typ":"JWT"`, `"typ":null`, `"typ":5`, `"cty":"JWT"`, `"cty":5`,
	`"jwk":{}`, `"jwk":null`, `"jwk":5`, `"jwk":{"kty":"oct","k":"AAAA"}`, `"JWK":5`,
	`"jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`, `"jwk":{"kty":"RSA","n":"AQAB","e":"AQAB"}`,
	`"jwk":{"kty":"OKP","crv":"Ed25519","x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
	`"x5c":["AAAA"]`, `"x5c":[]`, `"x5c":5`, `"x5c":null`, `"x5t":"AA"`, `"x5t":5`, `"x5t#S256":"AA"`, `"x5t#S256":5`,
	`"jku":"https://evil.example"`, `"jku":5`, `"x5u":5`, `"nonce":"x"`, `"nonce":5`, `"nonce":null`, `"nonce":{}`,
	`"enc":"A128GCM"`, `"enc":5`, `"zip":"DEF"`, `"epk":{}`, `"epk":5`, `"apu":5`, `"apv":"?"`, `"p2c":"x"`, `"p2s":5`, `"iv":5`, `"tag":5`,
	`"crit":[]`, `"crit":["exp"]`, `"crit":null`, `"b64":true`, `"b64":false`, `"b64":null`,
	`"foo":{"a":1,"a":2}`, `"foo":{"a":1,"A":2}`, `"foo":1e999`, `"foo":[-1E+400]`, `"foo":1e-999`, `"foo":-0`,
	`"foo":123456789012345678901234567890`, `"foo":1` + strings.Repeat("0", 400), `"foo":"\ud800"`,
	`"foo":` + strings.Repeat("[", 31) + strings.Repeat("]", 31), `"exp":"x"`, `"":""`, `"\u0000":1`, `"Kid":"x"`, `"\u212aid":"x"`,
}

// randomHeader makes a header of a token that would be good but for the members in it.
func randomHeader(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.Intn(len(of))] }
	members := []string{pick(`"alg":"ES256"`, `"alg":"ES256"`, `"alg":"ES256"`, `"alg":"\u0045S256"`, `"ALG":"ES256"`, `"alg":"es256"`, `"alg":null`)}
	if keyID := pick(`"kid":"k"`, `"kid":"k"`, `"kid":""`, `"kid":"\u006b"`, `"kid":null`, ``); keyID != "" {
		members = append(members, keyID)
	}
	for r.Intn(2) == 0 {
		members = append(members, pick(headerMembers...))
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	text := "{" + strings.Join(members, pick(",", ",", " , ")) + "}"
	return pick("", "", "", " ", "\n") + text + pick("", "", "", "\n", " x", "\x00", text)
}

// TestHeadersBesideKubernetes gives us and the parsers of Kubernetes the same headers
// under valid signatures. We accept none that either of them refuses. The other way round
// there are many: package jws documents which ones it refuses.
func TestHeadersBesideKubernetes(t *testing.T) {
	p := newPeers(t)
	for _, member := range headerMembers {
		t.Run(member[:min(len(member), 60)], func(t *testing.T) {
			p.noLooser(t, p.token(t, `{"alg":"ES256","kid":"k",`+member+`}`, `{"sub":"a"}`))
		})
	}
	t.Run("random", func(t *testing.T) {
		rounds := 20_000
		if testing.Short() {
			rounds = 2_000
		}
		r := rand.New(rand.NewSource(1))
		payloads := []string{`{"sub":"x"}`, `{}`, `{"exp":1e999}`, ``, "\xff", `[]`}
		accepted := 0
		for range rounds {
			if p.noLooser(t, p.token(t, randomHeader(r), payloads[r.Intn(len(payloads))])) {
				accepted++
			}
		}
		if accepted < rounds/10 || accepted > rounds/2 {
			t.Errorf("%d of %d headers are accepted: the rest shows nothing", accepted, rounds)
		}
	})
}

// FuzzHeader is the same for headers that a fuzzer makes.
func FuzzHeader(f *testing.F) {
	p := newPeers(f)
	for _, member := range headerMembers {
		f.Add(fmt.Sprintf(`{"alg":"ES256","kid":"k",%s}`, member))
	}
	f.Add(goodHeader)
	f.Fuzz(func(t *testing.T, header string) { p.noLooser(t, p.token(t, header, `{"sub":"a"}`)) })
}
