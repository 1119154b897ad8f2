package extsigner

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/refusal"
)

func encode(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// p256Key returns a key pair, and its public half under each of the key IDs.
func p256Key(t testing.TB, ids ...string) (*ecdsa.PrivateKey, []*jws.Key) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key, publicKeys(t, key.Public(), ids...)
}

func publicKeys(t testing.TB, public any, ids ...string) (keys []*jws.Key) {
	t.Helper()
	for _, id := range ids {
		key, err := jws.NewKey(public, jws.KeyOptions{KeyID: id})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// es256 signs any text, whatever the header says.
func es256(t testing.TB, key *ecdsa.PrivateKey, header, segment string) *jws.Signature {
	t.Helper()
	digest := sha256.Sum256([]byte(encode(header) + "." + segment))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 64)
	r.FillBytes(raw[:32])
	s.FillBytes(raw[32:])
	return &jws.Signature{Header: encode(header), Value: encode(string(raw))}
}

func TestSignatureCheck(t *testing.T) {
	key, all := p256Key(t, "k", "old")
	keys, s := all[:1], &Service{config: ServiceConfig{VerifyOnly: all[1:]}}
	segment := encode(`{"iss":"x"}`)
	const good = `{"alg":"ES256","kid":"k","typ":"JWT"}`
	for _, header := range []string{good, `{"typ":"JWT","kid":"k","alg":"ES256"}`, ` { "alg" : "ES256", "kid" : "\u006b", "typ" : "JWT" } `} {
		if err := s.checkSignature(es256(t, key, header, segment), segment, keys); err != nil {
			t.Errorf("%s: %v", header, err)
		}
	}
	for header, want := range map[string]refusal.Check{
		``:                                      checkSignerHeader,
		`null`:                                  checkSignerHeader,
		`[]`:                                    checkSignerHeader,
		good + `{}`:                             checkSignerHeader,
		`{"alg":"ES256","kid":"k"}`:             checkSignerHeader,
		`{"alg":"ES256","typ":"JWT"}`:           checkSignerHeader,
		`{"kid":"k","typ":"JWT"}`:               checkSignerHeader,
		`{"alg":"ES256","kid":"","typ":"JWT"}`:  checkSignerHeader,
		`{"alg":"ES256","kid":"k","typ":"jwt"}`: checkSignerHeader,
		`{"alg":"ES256","kid":5,"typ":"JWT"}`:   checkSignerHeader,
		`{"alg":"ES256","kid":"` + strings.Repeat("k", 1025) + `","typ":"JWT"}`: checkSignerHeader,
		`{"alg":"ES256","kid":"k","typ":"JWT","cty":"x"}`:                       checkSignerHeader,
		`{"alg":"ES256","kid":"k","typ":"JWT","b64":true}`:                      checkSignerHeader,
		`{"alg":"ES256","kid":"k","kid":"k","typ":"JWT"}`:                       checkSignerHeader,
		`{"alg":"none","kid":"k","typ":"JWT","ALG":"RS256"}`:                    checkSignerHeader,
		`{"alg":"none","kid":"k","typ":"JWT","ALG":"ES256"}`:                    checkSignerHeader,
		`{"ALG":"ES256","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"none","kid":"k","typ":"JWT"}`:                                  checkSignerHeader,
		`{"alg":"HS256","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"PS256","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"RS384","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"EdDSA","kid":"k","typ":"JWT"}`:                                 checkSignerHeader,
		`{"alg":"RS256","kid":"k","typ":"JWT"}`:                                 checkSignerKey,
		`{"alg":"ES256","kid":"other","typ":"JWT"}`:                             checkSignerKey,
		`{"alg":"ES256","kid":"K","typ":"JWT"}`:                                 checkSignerKey,
		`{"alg":"ES256","kid":"old","typ":"JWT"}`:                               checkSignerKey,
	} {
		t.Run(header, func(t *testing.T) {
			wantCheck(t, s.checkSignature(es256(t, key, header, segment), segment, keys), want)
		})
	}

	signed := es256(t, key, good, segment)
	other := es256(t, key, good, encode(`{"iss":"y"}`))
	raw, err := base64.RawURLEncoding.DecodeString(signed.Value)
	if err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*jws.Signature){
		"of other claims":   func(s *jws.Signature) { s.Value = other.Value },
		"none":              func(s *jws.Signature) { s.Value = "" },
		"cut":               func(s *jws.Signature) { s.Value = encode(string(raw[:63])) },
		"one byte more":     func(s *jws.Signature) { s.Value = encode(string(raw) + "\x00") },
		"padded":            func(s *jws.Signature) { s.Value += "==" },
		"a line break":      func(s *jws.Signature) { s.Value += "\n" },
		"unused bits":       func(s *jws.Signature) { s.Value = s.Value[:85] + "_" },
		"another segment":   func(s *jws.Signature) { s.Value += "." + s.Value },
		"DER":               func(s *jws.Signature) { s.Value = encode("\x30\x06\x02\x01\x01\x02\x01\x01") },
		"zeros":             func(s *jws.Signature) { s.Value = encode(string(make([]byte, 64))) },
		"standard alphabet": func(s *jws.Signature) { s.Value = "+/" + s.Value[2:] },
	} {
		t.Run(what, func(t *testing.T) {
			changed := *signed
			change(&changed)
			wantCheck(t, s.checkSignature(&changed, segment, keys), checkSignerSignature)
		})
	}
	for what, header := range map[string]string{
		"padded":       signed.Header + "=",
		"a line break": signed.Header[:8] + "\r\n" + signed.Header[8:],
		"huge":         strings.Repeat("A", maxSegmentSize+1),
		"a second one": signed.Header + "." + signed.Header,
	} {
		t.Run(what, func(t *testing.T) {
			changed := jws.Signature{Header: header, Value: signed.Value}
			wantCheck(t, s.checkSignature(&changed, segment, keys), checkSignerHeader)
		})
	}
	wantCheck(t, s.checkSignature(signed, segment, nil), checkSignerKey)
}

// fetch asks a service with these keys, the last of which only verify.
func fetch(t testing.TB, clock *testClock, verifyOnly int, keys ...*jws.Key) (*Keys, error) {
	t.Helper()
	config := serviceConfig(t, clock)
	signing := keys[:len(keys)-verifyOnly]
	config.Keys = keySetFunc(func(context.Context, string) ([]*jws.Key, error) { return signing, nil })
	config.VerifyOnly = keys[len(signing):]
	return newService(t, config).FetchKeys(t.Context())
}

func TestFetchKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	edwards, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("b", jws.MaxKeyIDSize)
	_, ec := p256Key(t, "a", "c")
	ofRSA := publicKeys(t, rsaKey.Public(), "a", long) // "a" for another algorithm
	answer, err := fetch(t, newClock(), 1, ec[0], ofRSA[0], ofRSA[1])
	if err != nil || len(answer.Keys) != 3 || answer.Keys[0].ExcludeFromOIDCDiscovery || !answer.Keys[2].ExcludeFromOIDCDiscovery ||
		answer.Keys[1].KeyID != "a" || answer.Keys[2].KeyID != long || answer.RefreshHintSeconds != 60 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if public, err := x509.ParsePKIXPublicKey(answer.Keys[1].Key); err != nil || !rsaKey.PublicKey.Equal(public) {
		t.Errorf("%v, %v", public, err)
	}
	pss, err := jws.NewKey(rsaKey.Public(), jws.KeyOptions{KeyID: "pss", Algorithm: jws.PS256})
	if err != nil {
		t.Fatal(err)
	}
	for only, refused := range []bool{false, true, true, false} { // the first and the last are one key
		answer, err := fetch(t, newClock(), only, ec[0], ec[1], ec[0])
		if refused {
			wantCheck(t, err, checkSignerKeys)
		} else if err != nil || len(answer.Keys) != 2 || answer.Keys[1].ExcludeFromOIDCDiscovery != (only > 0) {
			t.Errorf("one key twice, %d only verify: %+v, %v", only, answer, err)
		}
	}
	for what, keys := range map[string][]*jws.Key{
		"no key":            {},
		"a key that is nil": {ec[0], nil},
		"a zero key":        {ec[0], {}},
		"PSS":               {ec[0], pss},
		"Ed25519":           publicKeys(t, edwards, "a"),
	} {
		t.Run(what, func(t *testing.T) {
			for only := range len(keys) + 1 {
				answer, err := fetch(t, newClock(), only, keys...)
				if wantCheck(t, err, checkSignerKeys); answer != nil {
					t.Errorf("%+v", answer)
				}
			}
		})
	}
}

// FuzzSignature: no header and no signature that was not made with the key over
// these very claims passes.
func FuzzSignature(f *testing.F) {
	key, keys := p256Key(f, "k")
	service := &Service{config: ServiceConfig{Issuer: testIssuer}}
	segment := encode(`{}`)
	signed := es256(f, key, `{"alg":"ES256","kid":"k","typ":"JWT"}`, segment)
	f.Add(signed.Header, signed.Value, segment)
	f.Add(encode(`{"alg":"none","kid":"k","typ":"JWT","ALG":"ES256"}`), signed.Value, segment)
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, header, signature, payload string) {
		err := service.checkSignature(&jws.Signature{Header: header, Value: signature}, payload, keys)
		if err == nil && (header != signed.Header || payload != segment) {
			t.Fatalf("%q %q %q", header, payload, signature)
		}
		if err == nil {
			return
		}
		if e := new(refusal.Error); !errors.As(err, &e) {
			t.Fatalf("%T", err)
		}
	})
}
