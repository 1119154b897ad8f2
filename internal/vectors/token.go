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
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// tokenPayload is what the tokens say; nothing reads it.
const tokenPayload = `{"aud":["https://sts.example.com"],"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:shop:cart"}`

// tokenSigner signs tokens with the algorithm of its key.
type tokenSigner struct {
	private   crypto.Signer
	algorithm string
}

// segments signs two segments as they are.
func (s tokenSigner) segments(header, payload string) string {
	signed := header + "." + payload
	digest := sha256.Sum256([]byte(signed))
	signature := forge.Must(forge.Repeatable{Signer: s.private}.Sign(nil, digest[:], crypto.SHA256))
	if key, ok := s.private.(*ecdsa.PrivateKey); ok {
		r, s := forge.ECDSA(signature)
		half := (key.Params().BitSize + 7) / 8
		signature = append(r.FillBytes(make([]byte, half)), s.FillBytes(make([]byte, half))...)
	}
	return signed + "." + forge.Base64url(signature)
}

// token signs a header and the payload.
func (s tokenSigner) token(header string) string {
	return s.segments(forge.Base64url([]byte(header)), forge.Base64url([]byte(tokenPayload)))
}

// vector is a token, and the key with which it is to verify.
func (s tokenSigner) vector(text string) *vector.Token {
	return &vector.Token{Text: []byte(text), Key: forge.Must(x509.MarshalPKIXPublicKey(s.private.Public())), KeyID: "k", Algorithm: s.algorithm}
}

// with is a token whose header has a further member.
func (s tokenSigner) with(member string) string {
	return s.token(`{"alg":"` + s.algorithm + `","kid":"k",` + member + `}`)
}

// tokens are signed tokens, whose header is what other readers disagree about.
func (w *world) tokens() {
	es := tokenSigner{forge.ECKey(elliptic.P256(), "token key", nil), "ES256"}
	rs := tokenSigner{forge.RSAKey(2048, "RSA token key"), "RS256"}
	stranger := tokenSigner{forge.ECKey(elliptic.P256(), "stranger's token key", nil), "ES256"}
	const plain = `{"alg":"ES256","kid":"k"}`
	for _, a := range []struct{ name, what, header string }{
		{"plain", "A token as kube-apiserver signs it.", plain},
		{"of-external-signer", "A token as an external signer signs it, with typ.", `{"alg":"ES256","kid":"k","typ":"JWT"}`},
		{"without-kid", "The header names no key.", `{"alg":"ES256"}`},
		{"white-space", "White space stands in the header, as JSON allows.", " {\n\"alg\" : \"ES256\"}\t"},
		{"escape", "A letter of alg's value is an escape.", `{"alg":"\u0045S256","kid":"k"}`},
		{"unknown-member", "The header has a member that no specification knows.", `{"alg":"ES256","kid":"k","x":{"y":[1.5e3,null]}}`},
		{"nonce", "The header has a nonce that is a string.", `{"alg":"ES256","kid":"k","nonce":"n"}`},
		{"place-of-a-key", "The header says where a key would be; nobody asks there.", `{"alg":"ES256","kid":"k","jku":"https://evil.example","x5u":"https://evil.example"}`},
		{"thumbprint", "The header has thumbprints of a certificate.", `{"alg":"ES256","kid":"k","x5t":"AA","x5t#S256":"AA"}`},
		{"largest-number", "A member is the largest number that float64 holds.", `{"alg":"ES256","kid":"k","x":1.7976931348623157e308}`},
	} {
		w.accept("header-"+a.name, a.what, es.vector(es.token(a.header)), nil, nil)
	}
	w.accept("header-rs256", "A token that an RSA key signed.", rs.vector(rs.token(`{"alg":"RS256","kid":"k"}`)), nil, nil)

	w.refusedHeaders(es)
	good := es.token(plain)
	parts := strings.Split(good, ".")
	for _, a := range []row[string]{
		{"jwk-of-the-signer", "The header brings the key of a stranger, who signed.", "header", stranger.with(`"jwk":` + jwkOf(stranger))},
		{"of-a-stranger", "Another key than the issuer's signed.", "signature", stranger.token(plain)},
		{"hs256-with-the-public-key", "The MAC is made with the issuer's public key as the secret.", "algorithm", hs256(es)},
		{"line-end-in-signature", "A line end stands in the signature segment.", "base64url", good[:len(good)-4] + "\n" + good[len(good)-4:]},
		{"line-end-in-header", "A line end stands in the header segment, and is signed.", "base64url", es.segments(parts[0][:4]+"\n"+parts[0][4:], parts[1])},
		{"padding", "The signature segment is padded.", "base64url", good + "=="},
		{"unused-bits", "Bits of the signature's last character that stand for nothing are set.", "base64url", good[:len(good)-1] + unusedBits(good[len(good)-1])},
		{"no-signature", "The token names none as its algorithm and has no signature.", "algorithm", forge.Base64url([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."},
		{"signature-of-a-byte-less", "The signature is a byte too short.", "signature-size", parts[0] + "." + parts[1] + "." + forge.Base64url(forge.Must(base64.RawURLEncoding.DecodeString(parts[2]))[1:])},
		{"two-segments", "The signature segment is not there.", "form", parts[0] + "." + parts[1]},
		{"another-payload", "The payload is another than the one that was signed.", "signature", parts[0] + "." + forge.Base64url([]byte(strings.Replace(tokenPayload, "cart", "root", 1))) + "." + parts[2]},
	} {
		w.refuse("header-"+a.name, a.what, a.expect, es.vector(a.in), nil)
	}
	w.refuse("header-another-algorithm-of-the-key", "The header names another algorithm that fits the key.", "algorithm",
		rs.vector(rs.token(`{"alg":"PS256","kid":"k"}`)), nil)
}

// refusedHeaders are headers that the issuer itself signed.
func (w *world) refusedHeaders(s tokenSigner) {
	for _, a := range []row[string]{
		{"jwk", "The header brings the issuer's own key: a token brings none.", "header", `"jwk":` + jwkOf(s)},
		{"jwk-null", "jwk is null.", "header", `"jwk":null`},
		{"jwk-number", "jwk is no object.", "header", `"jwk":5`},
		{"jwk-empty", "jwk has no member.", "header", `"jwk":{}`},
		{"jwk-symmetric", "jwk is a symmetric key.", "header", `"jwk":{"kty":"oct","k":"AAAA"}`},
		{"jwk-off-curve", "jwk is a point off its curve.", "header", `"jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`},
		{"jwk-private", "jwk has a private member.", "header", `"jwk":` + strings.TrimSuffix(jwkOf(s), "}") + `,"d":"` + strings.Repeat("A", 43) + `"}`},
		{"x5c", "x5c holds DER that is no certificate.", "header", `"x5c":["MAMCAQE="]`},
		{"x5c-text", "x5c holds no base64.", "header", `"x5c":["?"]`},
		{"x5c-number", "x5c is no array.", "header", `"x5c":5`},
		{"x5c-empty", "x5c is empty.", "header", `"x5c":[]`},
		{"nonce-number", "nonce is a number.", "header", `"nonce":5`},
		{"nonce-null", "nonce is null.", "header", `"nonce":null`},
		{"number-over-float64", "A member is a number that float64 does not hold.", "header", `"x":1e999`},
		{"number-below", "Deep in a member is such a number.", "header", `"x":[{"y":-1E+309}]`},
		{"crit", "crit names a member as critical.", "critical-header", `"crit":["exp"],"exp":1`},
		{"crit-empty", "crit is an empty array.", "critical-header", `"crit":[]`},
		{"b64", "b64 says that the payload is not encoded.", "critical-header", `"b64":false`},
		{"b64-true", "b64 says what is so without it.", "critical-header", `"b64":true`},
		{"kid-twice", "kid stands there twice.", "header", `"kid":"k"`},
		{"alg-in-another-case", "ALG stands beside alg.", "header", `"ALG":"none"`},
		{"kid-in-another-case", "The member KELVIN SIGN, i, d is kid to a reader that folds cases.", "header", `"\u212aid":"x"`},
		{"member-twice", "An unknown member stands there twice.", "header", `"x":1,"x":2`},
		{"typ-number", "typ is a number.", "header", `"typ":5`},
		{"lone-surrogate", "A text has half a character.", "header", `"x":"\ud800"`},
	} {
		w.refuse("header-"+a.name, a.what, a.expect, s.vector(s.with(a.in)), nil)
	}
	for _, a := range []row[string]{
		{"another-key-id", "The header names another key.", "key-id", `{"alg":"ES256","kid":"K"}`},
		{"kid-number", "kid is a number.", "header", `{"alg":"ES256","kid":1}`},
		{"no-algorithm", "The header names no algorithm.", "algorithm", `{"kid":"k"}`},
		{"algorithm-none", "The header names none as its algorithm, under a good signature.", "algorithm", `{"alg":"none","kid":"k"}`},
		{"algorithm-in-lower-case", "The algorithm is written in lower case.", "algorithm", `{"alg":"es256","kid":"k"}`},
		{"array", "The header is an array.", "header", `[{"alg":"ES256"}]`},
		{"text-after", "Text follows the header's JSON.", "header", `{"alg":"ES256","kid":"k"} x`},
		{"byte-order-mark", "A byte order mark stands before the JSON.", "header", "\ufeff" + `{"alg":"ES256","kid":"k"}`},
		{"not-utf-8", "A text is not UTF-8.", "header", "{\"alg\":\"ES256\",\"kid\":\"k\xff\"}"},
	} {
		w.refuse("header-"+a.name, a.what, a.expect, s.vector(s.token(a.in)), nil)
	}
}

// jwkOf is the public key as a JWK.
func jwkOf(s tokenSigner) string {
	key := s.private.Public().(*ecdsa.PublicKey)
	point := forge.Must(key.Bytes())
	return string(forge.Must(json.Marshal(map[string]string{"kty": "EC", "crv": "P-256", "x": forge.Base64url(point[1:33]), "y": forge.Base64url(point[33:])})))
}

// hs256 signs with what everybody knows: the issuer's public key in DER.
func hs256(s tokenSigner) string {
	signed := forge.Base64url([]byte(`{"alg":"HS256","kid":"k"}`)) + "." + forge.Base64url([]byte(tokenPayload))
	mac := hmac.New(sha256.New, forge.Must(x509.MarshalPKIXPublicKey(s.private.Public())))
	mac.Write([]byte(signed))
	return signed + "." + forge.Base64url(mac.Sum(nil))
}

// unusedBits is the next character after one of base64url that ends on bits which stand
// for nothing.
func unusedBits(last byte) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return string(digits[bytes.IndexByte([]byte(digits), last)|1])
}

const (
	tokenIssuer   = "https://kubernetes.default.svc"
	tokenLifetime = 3607 // what the kubelet asks for
)

// podClaims are those of a token for a pod, issued now, as kube-apiserver writes them.
func (w *world) podClaims() string {
	b := apiserver.Bound{
		ServiceAccount: &claims.Object{Namespace: "shop", Name: "cart", UID: "uid-of-cart"},
		Pod:            &claims.Pod{Object: claims.Object{Namespace: "shop", Name: "cart-0", UID: "uid-of-cart-0"}},
		Node:           &claims.Node{Object: claims.Object{Name: forge.NodeName, UID: "uid-of-node-1"}},
	}
	c := forge.Must(apiserver.NewClaims(b, tokenLifetime, 0, []string{"https://sts.example.com"}, "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10", w.Now))
	c.Issuer = tokenIssuer
	return string(forge.Must(c.Marshal()))
}

// signers are claim sets before an external signer, whose signature they would turn into
// whatever a verifier of tokens reads in them.
func (w *world) signers() {
	good := w.podClaims()
	signer := func(text string) *vector.Signer {
		return &vector.Signer{Issuer: tokenIssuer, MaxLifetimeSeconds: tokenLifetime, Claims: []byte(text)}
	}
	w.accept("signer-pod-token", "The claims of a token for a pod, as kube-apiserver writes them.", signer(good), nil, nil)
	edit := func(from, to string) string {
		if strings.Count(good, from) != 1 {
			forge.Check(strconv.ErrSyntax)
		}
		return strings.Replace(good, from, to, 1)
	}
	now := strconv.FormatInt(w.Now.Unix(), 10)
	end := strconv.FormatInt(w.Now.Unix()+tokenLifetime, 10)
	for _, a := range []struct{ name, what, text string }{
		{"groups", "A claim groups with system:masters stands beside those of a bound token.", edit(`"iat"`, `"groups":["system:masters"],"iat"`)},
		{"email", "A claim email stands beside those of a bound token.", edit(`"exp"`, `"email":"root@corp.example","email_verified":true,"exp"`)},
		{"cloud-tags", "A cloud's principal tags stand beside the claims of a bound token.", edit(`"iat"`, `"https://aws.amazon.com/tags":{"principal_tags":{"admin":["1"]}},"iat"`)},
		{"act", "A claim act names somebody else as the acting party.", edit(`{"aud"`, `{"act":{"sub":"system:admin"},"aud"`)},
		{"private-claim", "A member that Kubernetes does not know stands among the private claims.", edit(`{"namespace"`, `{"group":"x","namespace"`)},
		{"reference-claim", "A member that Kubernetes does not know stands in the pod's reference.", edit(`{"name":"cart-0"`, `{"kind":"x","name":"cart-0"`)},
		{"white-space", "A space follows the claim set.", good + " "},
		{"escape", "A letter of a name is written as an escape.", edit(`"namespace":"shop"`, `"namespace":"\u0073hop"`)},
		{"order", "The members stand in another order.", edit(`{"aud":["https://sts.example.com"],"exp":`+end, `{"exp":`+end+`,"aud":["https://sts.example.com"]`)},
		{"audience-text", "The audience is a string in place of an array.", edit(`["https://sts.example.com"]`, `"https://sts.example.com"`)},
		{"member-twice", "The subject stands there twice.", edit(`,"sub"`, `,"sub":"system:serviceaccount:kube-system:admin","sub"`)},
		{"subject", "The subject is another service account than the private claims name.", edit(`serviceaccount:shop:cart"`, `serviceaccount:shop:admin"`)},
		{"issuer", "The claims are another issuer's.", edit(tokenIssuer, "https://other.example.com")},
		{"lifetime", "The token lives a second longer than the signer's maximum.", edit(`"exp":`+end, `"exp":`+strconv.FormatInt(w.Now.Unix()+tokenLifetime+1, 10))},
		{"not-before", "The token is good from a time long before it was issued.", edit(`"nbf":`+now, `"nbf":`+strconv.FormatInt(w.Now.Unix()-1000000, 10))},
	} {
		w.refuse("signer-"+a.name, a.what, "signer-claims", signer(a.text), nil)
	}
}
