package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/claims/apiserver"
	"github.com/nodeattest/nodeattest/internal/testkit/softak"
	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// tokenPayload is the content of the tokens; nothing reads it.
const tokenPayload = `{"aud":["https://sts.example.com"],"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:shop:cart"}`

// tokenSigner signs tokens with the algorithm of its key.
type tokenSigner struct {
	private   crypto.Signer
	algorithm string
}

// segments signs two segments unchanged.
func (s tokenSigner) segments(header, payload string) string {
	signed := header + "." + payload
	digest := sha256.Sum256([]byte(signed))
	signature := forge.Must(forge.Repeatable{Signer: s.private}.Sign(nil, digest[:], crypto.SHA256))
	if key, ok := s.private.(*ecdsa.PrivateKey); ok {
		r, s := softak.Split(signature)
		half := (key.Params().BitSize + 7) / 8
		signature = append(r.FillBytes(make([]byte, half)), s.FillBytes(make([]byte, half))...)
	}
	return signed + "." + forge.Base64url(signature)
}

// token signs a header and the payload.
func (s tokenSigner) token(header string) string {
	return s.segments(forge.Base64url([]byte(header)), forge.Base64url([]byte(tokenPayload)))
}

// vector is a token, and the key with which it must verify.
func (s tokenSigner) vector(text string) *vector.Token {
	return &vector.Token{Text: []byte(text), Key: forge.Must(x509.MarshalPKIXPublicKey(s.private.Public())), KeyID: "k", Algorithm: s.algorithm}
}

// with is a token whose header has an additional member.
func (s tokenSigner) with(member string) string {
	return s.token(`{"alg":"` + s.algorithm + `","kid":"k",` + member + `}`)
}

// tokens are signed tokens whose headers other readers disagree about.
func (w *world) tokens() {
	es := tokenSigner{forge.ECKey(elliptic.P256(), "token key", nil), "ES256"}
	rs := tokenSigner{rsaKey(2048, "RSA token key"), "RS256"}
	stranger := tokenSigner{forge.ECKey(elliptic.P256(), "stranger's token key", nil), "ES256"}
	const plain = `{"alg":"ES256","kid":"k"}`
	for _, a := range listed("good token headers", map[string]string{
		"plain":              plain,
		"of-external-signer": `{"alg":"ES256","kid":"k","typ":"JWT"}`,
		"without-kid":        `{"alg":"ES256"}`,
		"white-space":        " {\n\"alg\" : \"ES256\"}\t",
		"escape":             `{"alg":"\u0045S256","kid":"k"}`,
		"unknown-member":     `{"alg":"ES256","kid":"k","x":{"y":[1.5e3,null]}}`,
		"nonce":              `{"alg":"ES256","kid":"k","nonce":"n"}`,
		"place-of-a-key":     `{"alg":"ES256","kid":"k","jku":"https://evil.example","x5u":"https://evil.example"}`,
		"thumbprint":         `{"alg":"ES256","kid":"k","x5t":"AA","x5t#S256":"AA"}`,
		"largest-number":     `{"alg":"ES256","kid":"k","x":1.7976931348623157e308}`,
	}) {
		w.acceptAs("header-"+a.Name, a.What, es.vector(es.token(a.Change)), nil, nil)
	}
	w.accept("header-rs256", rs.vector(rs.token(`{"alg":"RS256","kid":"k"}`)), nil, nil)

	w.refusedHeaders(es)
	good := es.token(plain)
	parts := strings.Split(good, ".")
	for _, a := range listed("tokens", map[string]string{
		"jwk-of-the-signer":         stranger.with(`"jwk":` + jwkOf(stranger)),
		"of-a-stranger":             stranger.token(plain),
		"hs256-with-the-public-key": hs256(es),
		"line-end-in-signature":     good[:len(good)-4] + "\n" + good[len(good)-4:],
		"line-end-in-header":        es.segments(parts[0][:4]+"\n"+parts[0][4:], parts[1]),
		"padding":                   good + "==",
		"unused-bits":               good[:len(good)-1] + unusedBits(good[len(good)-1]),
		"no-signature":              forge.Base64url([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".",
		"signature-of-a-byte-less":  parts[0] + "." + parts[1] + "." + forge.Base64url(forge.Must(base64.RawURLEncoding.DecodeString(parts[2]))[1:]),
		"two-segments":              parts[0] + "." + parts[1],
		"another-payload":           parts[0] + "." + forge.Base64url([]byte(strings.Replace(tokenPayload, "cart", "root", 1))) + "." + parts[2],
	}) {
		w.refuseAs("header-"+a.Name, a.What, a.Expect, es.vector(a.Change), nil)
	}
	w.refuse("header-another-algorithm-of-the-key", rs.vector(rs.token(`{"alg":"PS256","kid":"k"}`)), nil)
}

// refusedHeaders are headers that the issuer itself signed.
func (w *world) refusedHeaders(s tokenSigner) {
	for _, a := range listed("members of token headers", map[string]string{
		"jwk":                 `"jwk":` + jwkOf(s),
		"jwk-null":            `"jwk":null`,
		"jwk-number":          `"jwk":5`,
		"jwk-empty":           `"jwk":{}`,
		"jwk-symmetric":       `"jwk":{"kty":"oct","k":"AAAA"}`,
		"jwk-off-curve":       `"jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`,
		"jwk-private":         `"jwk":` + strings.TrimSuffix(jwkOf(s), "}") + `,"d":"` + strings.Repeat("A", 43) + `"}`,
		"x5c":                 `"x5c":["MAMCAQE="]`,
		"x5c-text":            `"x5c":["?"]`,
		"x5c-number":          `"x5c":5`,
		"x5c-empty":           `"x5c":[]`,
		"nonce-number":        `"nonce":5`,
		"nonce-null":          `"nonce":null`,
		"number-over-float64": `"x":1e999`,
		"number-below":        `"x":[{"y":-1E+309}]`,
		"crit":                `"crit":["exp"],"exp":1`,
		"crit-empty":          `"crit":[]`,
		"b64":                 `"b64":false`,
		"b64-true":            `"b64":true`,
		"kid-twice":           `"kid":"k"`,
		"alg-in-another-case": `"ALG":"none"`,
		"kid-in-another-case": `"\u212aid":"x"`,
		"member-twice":        `"x":1,"x":2`,
		"typ-number":          `"typ":5`,
		"lone-surrogate":      `"x":"\ud800"`,
	}) {
		w.refuseAs("header-"+a.Name, a.What, a.Expect, s.vector(s.with(a.Change)), nil)
	}
	for _, a := range listed("token headers", map[string]string{
		"another-key-id":          `{"alg":"ES256","kid":"K"}`,
		"kid-number":              `{"alg":"ES256","kid":1}`,
		"no-algorithm":            `{"kid":"k"}`,
		"algorithm-none":          `{"alg":"none","kid":"k"}`,
		"algorithm-in-lower-case": `{"alg":"es256","kid":"k"}`,
		"array":                   `[{"alg":"ES256"}]`,
		"text-after":              `{"alg":"ES256","kid":"k"} x`,
		"byte-order-mark":         "\ufeff" + `{"alg":"ES256","kid":"k"}`,
		"not-utf-8":               "{\"alg\":\"ES256\",\"kid\":\"k\xff\"}",
	}) {
		w.refuseAs("header-"+a.Name, a.What, a.Expect, s.vector(s.token(a.Change)), nil)
	}
}

// jwkOf is the public key as a JWK.
func jwkOf(s tokenSigner) string {
	key := s.private.Public().(*ecdsa.PublicKey)
	point := forge.Must(key.Bytes())
	return string(forge.Must(json.Marshal(map[string]string{"kty": "EC", "crv": "P-256", "x": forge.Base64url(point[1:33]), "y": forge.Base64url(point[33:])})))
}

// hs256 signs with what everyone knows: the issuer's public key in DER.
func hs256(s tokenSigner) string {
	signed := forge.Base64url([]byte(`{"alg":"HS256","kid":"k"}`)) + "." + forge.Base64url([]byte(tokenPayload))
	mac := hmac.New(sha256.New, forge.Must(x509.MarshalPKIXPublicKey(s.private.Public())))
	mac.Write([]byte(signed))
	return signed + "." + forge.Base64url(mac.Sum(nil))
}

// unusedBits is the next character after a base64url character that ends in bits that encode
// nothing.
func unusedBits(last byte) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(digits[bytes.IndexByte([]byte(digits), last)|1])
}

const (
	tokenIssuer   = "https://kubernetes.default.svc"
	tokenLifetime = 3607 // as the kubelet requests
)

// podClaims are the claims of a token for a pod, issued now, as kube-apiserver writes them.
func (w *world) podClaims() string {
	b := apiserver.Bound{
		ServiceAccount: &claims.Object{Namespace: "shop", Name: "cart", UID: "uid-of-cart"},
		Pod:            &claims.Object{Namespace: "shop", Name: "cart-0", UID: "uid-of-cart-0"},
		Node:           &claims.Object{Name: forge.NodeName, UID: "uid-of-node-1"},
	}
	c := forge.Must(apiserver.NewClaims(b, tokenLifetime, 0, []string{"https://sts.example.com"}, "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10", w.Now))
	c.Issuer = tokenIssuer
	return string(forge.Must(c.Marshal()))
}

// signers are claim sets given to an external signer, whose signature they would turn into
// whatever a verifier of tokens reads in them.
func (w *world) signers() {
	good := w.podClaims()
	signer := func(text string) *vector.Signer {
		return &vector.Signer{Issuer: tokenIssuer, MaxLifetimeSeconds: tokenLifetime, Claims: []byte(text)}
	}
	w.accept("signer-pod-token", signer(good), nil, nil)
	edit := func(from, to string) string {
		if strings.Count(good, from) != 1 {
			forge.Check(strconv.ErrSyntax)
		}
		return strings.Replace(good, from, to, 1)
	}
	now := strconv.FormatInt(w.Now.Unix(), 10)
	end := strconv.FormatInt(w.Now.Unix()+tokenLifetime, 10)
	for _, a := range listed("claims to be signed", map[string]string{
		"groups":          edit(`"iat"`, `"groups":["system:masters"],"iat"`),
		"email":           edit(`"exp"`, `"email":"root@corp.example","email_verified":true,"exp"`),
		"cloud-tags":      edit(`"iat"`, `"https://aws.amazon.com/tags":{"principal_tags":{"admin":["1"]}},"iat"`),
		"act":             edit(`{"aud"`, `{"act":{"sub":"system:admin"},"aud"`),
		"private-claim":   edit(`{"namespace"`, `{"group":"x","namespace"`),
		"reference-claim": edit(`{"name":"cart-0"`, `{"kind":"x","name":"cart-0"`),
		"white-space":     good + " ",
		"escape":          edit(`"namespace":"shop"`, `"namespace":"\u0073hop"`),
		"order":           edit(`{"aud":["https://sts.example.com"],"exp":`+end, `{"exp":`+end+`,"aud":["https://sts.example.com"]`),
		"audience-text":   edit(`["https://sts.example.com"]`, `"https://sts.example.com"`),
		"member-twice":    edit(`,"sub"`, `,"sub":"system:serviceaccount:kube-system:admin","sub"`),
		"subject":         edit(`serviceaccount:shop:cart"`, `serviceaccount:shop:admin"`),
		"issuer":          edit(tokenIssuer, "https://other.example.com"),
		"lifetime":        edit(`"exp":`+end, `"exp":`+strconv.FormatInt(w.Now.Unix()+tokenLifetime+1, 10)),
		"not-before":      edit(`"nbf":`+now, `"nbf":`+strconv.FormatInt(w.Now.Unix()-1000000, 10)),
	}) {
		w.refuseAs("signer-"+a.Name, a.What, "signer-claims", signer(a.Change), nil)
	}
}
