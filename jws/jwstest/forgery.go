package jwstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/jws"
)

// Forgery is a token that every verifier must refuse.
type Forgery struct {
	// Name says which part is wrong, in kebab-case: alg-none.
	Name string
	// Token is the token in compact form.
	Token string
	// Check is the check by which jws.VerifySignature refuses it, with the signer's key in the set.
	Check jws.Check
}

// Forgeries returns tokens with this payload, at most 32,768 bytes, each with one fault: the
// algorithm none, HS256 with the public key as its secret, or one that is not the key's; two key IDs or
// algorithms, or the ID of no key; members that change the meaning of a signature or supply a key;
// base64url with padding, line ends or unused bits; a signature that is missing, short, in DER, over
// another payload, or by another key. All are signed with the private key as far as an attacker could
// have got that: a verifier that overlooks the fault accepts the token.
//
// The error is the private key's.
func (s *Signer) Forgeries(payload []byte) ([]Forgery, error) {
	if len(payload) > 32<<10 {
		return nil, fmt.Errorf("jwstest: got a payload of %d bytes, want at most %d", len(payload), 32<<10)
	}
	keys, err := jws.NewStaticKeySet(s.Key())
	if err != nil {
		return nil, err
	}
	f := &forger{Signer: s, payload: payload}
	f.headers()
	f.encodings()
	f.signatures()
	for i := range f.made {
		made := &f.made[i]
		var refused *jws.Error
		if _, err := jws.VerifySignature(context.Background(), made.Token, keys); !errors.As(err, &refused) {
			f.err = errors.Join(f.err, fmt.Errorf("jwstest: %s: jws.VerifySignature accepts this forgery", made.Name))
			continue
		}
		made.Check = refused.Check
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.made, nil
}

// forger collects forgeries, and the errors of the private key.
type forger struct {
	*Signer
	payload []byte
	made    []Forgery
	err     error
}

// add adds a token, unless it was not made.
func (f *forger) add(name, token string, err error) {
	f.made, f.err = append(f.made, Forgery{Name: name, Token: token}), errors.Join(f.err, err)
}

// usual returns the usual header in JSON, with more members at its end.
func (f *forger) usual(more string) string { return f.header(string(f.Key().Algorithm()), more) }

// header returns a header with the key's ID and any algorithm.
func (f *forger) header(algorithm, more string) string {
	return `{"alg":"` + algorithm + `","kid":` + quote(f.Key().KeyID()) + more + `}`
}

// signed returns header and payload as they are signed.
func (f *forger) signed(header string) string { return b64([]byte(header)) + "." + b64(f.payload) }

// quote returns a string in JSON.
func quote(s string) string {
	text, _ := json.Marshal(s) // a string always has an encoding
	return string(text)
}

// headers adds well-signed tokens with wrong headers.
func (f *forger) headers() {
	kid := quote(f.Key().KeyID())
	alg := string(f.Key().Algorithm())
	member := `"alg":"` + alg + `"`
	key, err := f.Key().MarshalJSON()
	f.err = errors.Join(f.err, err)
	for _, h := range []struct{ name, header string }{
		{"alg-none", f.header("none", "")},
		{"alg-absent", `{"kid":` + kid + `}`},
		{"alg-other-case", f.header(strings.ToLower(alg[:1])+alg[1:], "")}, // es256, edDSA
		{"alg-twice", `{"alg":"none",` + member + `,"kid":` + kid + `}`},
		{"alg-member-in-capitals", `{` + member + `,"ALG":"none","kid":` + kid + `}`},
		{"kid-unknown", `{` + member + `,"kid":"no key has this ID"}`},
		{"kid-number", `{` + member + `,"kid":1}`},
		{"kid-twice", f.usual(`,"kid":` + kid)},
		{"kid-member-in-capitals", f.usual(`,"KID":"x"`)},
		{"kid-too-long", `{` + member + `,"kid":"` + strings.Repeat("k", jws.MaxKeyIDSize+1) + `"}`},
		{"crit", f.usual(`,"crit":["exp"],"exp":0`)},
		{"b64", f.usual(`,"b64":true`)},
		{"jwk", f.usual(`,"jwk":` + string(key))},
		{"x5c", f.usual(`,"x5c":[]`)},
		{"header-array", `[` + f.usual("") + `]`},
		{"header-with-more-after", f.usual("") + `{}`},
		{"header-not-json", f.usual("")[1:]},
		{"header-empty", ""},
	} {
		token, err := f.Forge(h.header, f.payload)
		f.add(h.name, token, err)
	}
}

// encodings adds tokens whose segments are not base64url as RFC 7515 has it; header and payload are
// signed as they are.
func (f *forger) encodings() {
	header, payload := b64([]byte(f.usual(""))), b64(f.payload)
	spaced := f.usual("") // with as many spaces as leave unused bits in the last symbol
	for len(spaced)%3 != 1 {
		spaced += " "
	}
	unused := b64([]byte(spaced))
	for _, e := range []struct{ name, header, payload string }{
		{"header-padded", header + "=", payload},
		{"header-unused-bits", unused[:len(unused)-1] + nextSymbol(unused[len(unused)-1]), payload},
		{"header-line-end", header[:4] + "\n" + header[4:], payload},
		{"payload-padded", header, payload + "="},
		{"payload-line-end", header, payload + "\r\n"},
	} {
		token, err := f.segments(e.header, e.payload)
		f.add(e.name, token, err)
	}
	good, err := f.segments(header, payload)
	f.add("signature-padded", good+"=", err)
	f.add("signature-line-end", good+"\n", nil)
	f.add("four-segments", good+".", nil)
	f.add("two-segments", good[:max(0, strings.LastIndexByte(good, '.'))], nil)
}

// nextSymbol returns the base64url symbol whose value is one more.
func nextSymbol(c byte) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	i := (strings.IndexByte(alphabet, c) + 1) % len(alphabet)
	return alphabet[i : i+1]
}

// signatures adds tokens with wrong signatures.
func (f *forger) signatures() {
	header := b64([]byte(f.usual("")))
	signed := f.signed(f.usual(""))
	signature, err := f.raw(f.Key().Algorithm(), []byte(signed))
	if err != nil {
		f.err = errors.Join(f.err, err)
		return
	}
	f.add("alg-none-without-signature", f.signed(f.header("none", ""))+".", nil)
	f.add("signature-absent", signed+".", nil)
	f.add("signature-cut", signed+"."+b64(signature[:len(signature)-1]), nil)
	f.add("signature-with-more-after", signed+"."+b64(append(slices.Clone(signature), 0)), nil)
	f.add("payload-changed", header+"."+b64(append(slices.Clone(f.payload), ' '))+"."+b64(signature), nil)

	// Another key under the same key ID.
	if other, err := OpenSigner(nil, jws.SignerOptions{KeyID: f.Key().KeyID(), Algorithm: f.Key().Algorithm()}); err != nil {
		f.err = errors.Join(f.err, err)
	} else {
		token, err := other.Forge(f.usual(""), f.payload)
		f.add("signature-by-another-key", token, err)
	}

	// RFC 8725, section 2.1: an HMAC whose secret is the public key.
	der, err := x509.MarshalPKIXPublicKey(f.Key().Public())
	confused := f.signed(f.header("HS256", ""))
	mac := hmac.New(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	mac.Write([]byte(confused))
	f.add("alg-HS256-with-the-public-key", confused+"."+b64(mac.Sum(nil)), err)

	f.ofType(signed, signature)
}

// ofType adds forgeries that only one type of key has.
func (f *forger) ofType(signed string, signature []byte) {
	switch f.Key().Public().(type) {
	case *rsa.PublicKey: // a good signature, with another algorithm of the same key
		other := jws.PS256
		if f.Key().Algorithm() == other {
			other = jws.RS256
		}
		text := f.signed(f.header(string(other), ""))
		value, err := f.raw(other, []byte(text))
		f.add("alg-of-the-same-key", text+"."+b64(value), err)
	case *ecdsa.PublicKey:
		half := len(signature) / 2
		r, s := new(big.Int).SetBytes(signature[:half]), new(big.Int).SetBytes(signature[half:])
		der, err := asn1.Marshal(struct{ R, S *big.Int }{r, s})
		f.add("signature-in-DER", signed+"."+b64(der), err)
		f.add("signature-of-zeros", signed+"."+b64(make([]byte, len(signature))), nil) // CVE-2022-21449
	}
}
