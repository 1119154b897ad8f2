package jws

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestHeaderAccepted(t *testing.T) {
	for text, want := range map[string]header{
		`{"alg":"ES256","kid":"k","typ":"JWT"}`:              {[]byte("ES256"), "k", "JWT"},
		" {\n\t\"kid\" : \"k\",\r\"alg\":\"ES256\" } ":       {[]byte("ES256"), "k", ""},
		`{"alg":"\u0045S256","kid":"\u006b","typ":"at+jwt"}`: {[]byte("ES256"), "k", "at+jwt"},
		`{"alg":"x","nonce":"n","x5t":"a","cty":null}`:       {[]byte("x"), "", ""},
		`{"alg":"x","kids":1,"algorithm":[{}]}`:              {[]byte("x"), "", ""},
		`{}`:                                                 {},
	} {
		t.Run(text, func(t *testing.T) {
			got, err := parseHeader([]byte(text))
			if err != nil || string(got.algorithm) != string(want.algorithm) || got.keyID != want.keyID || got.typ != want.typ {
				t.Errorf("%s: got %q, %v", text, got, err)
			}
		})
	}
}

func TestHeaderRefused(t *testing.T) {
	for text, want := range map[string]Check{
		``:                                     CheckHeader,
		`null`:                                 CheckHeader,
		`[]`:                                   CheckHeader,
		`"alg"`:                                CheckHeader,
		`{"alg":"ES256"`:                       CheckHeader,
		`{"alg":"ES256"}}`:                     CheckHeader,
		`{"alg":"ES256"} {}`:                   CheckHeader,
		`{"alg":"ES256",}`:                     CheckHeader,
		`{"alg":1}`:                            CheckHeader,
		`{"alg":null}`:                         CheckHeader,
		`{"alg":["ES256"]}`:                    CheckHeader,
		`{"alg":"ES256","kid":1}`:              CheckHeader,
		`{"alg":"ES256","kid":null}`:           CheckHeader,
		`{"alg":"ES256","typ":true}`:           CheckHeader,
		`{"alg":"ES256","alg":"ES256"}`:        CheckHeader,
		`{"alg":"ES256","ALG":"none"}`:         CheckHeader,
		`{"Alg":"ES256"}`:                      CheckHeader,
		`{"alg":"ES256","Kid":"k"}`:            CheckHeader,
		`{"alg":"ES256","\u212aid":"k"}`:       CheckHeader,
		`{"alg":"ES256","TYP":"JWT"}`:          CheckHeader,
		`{"alg":"ES256","kid":"k","kid":"k"}`:  CheckHeader,
		`{"alg":"ES256","x":{"a":1,"A":2}}`:    CheckHeader,
		`{"alg":"ES256","Crit":["exp"]}`:       CheckHeader,
		`{"alg":"ES256","B64":true}`:           CheckHeader,
		"{\"alg\":\"ES256\",\"kid\":\"\xff\"}": CheckHeader,
		`{"alg":"ES256","kid":"\ud800"}`:       CheckHeader,
		`{"alg":"ES256","crit":["exp"]}`:       checkCritical,
		`{"alg":"ES256","crit":[]}`:            checkCritical,
		`{"alg":"ES256","crit":null}`:          checkCritical,
		`{"alg":"ES256","crit":["b64"]}`:       checkCritical,
		`{"b64":false,"alg":"ES256"}`:          checkCritical,
		`{"alg":"ES256","b64":true}`:           checkCritical,
		`{"alg":"ES256","\u0062\u00364":true}`: checkCritical,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := parseHeader([]byte(text))
			refusedFor(t, text, err, want)
		})
	}
}

// Each header belongs to a token whose signature is good. Kubernetes, by way of go-jose, refuses
// the headers, too, that are refused here for a member of another specification; test/interop
// compares the two.
func TestHeaderKinds(t *testing.T) {
	f := forgers()[ES256]
	own, err := f.key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	const der = "MAMCAQE=" // DER, and no certificate
	for name, test := range map[string]struct {
		member string
		want   Check // empty: accepted
	}{
		"nothing more":                {``, ""},
		"jwk that is a number":        {`,"jwk":5`, CheckHeader},
		"jwk that is null":            {`,"jwk":null`, CheckHeader},
		"jwk without members":         {`,"jwk":{}`, CheckHeader},
		"jwk of a symmetric key":      {`,"jwk":{"kty":"oct","k":"AAAA"}`, CheckHeader},
		"jwk off its curve":           {`,"jwk":{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}`, CheckHeader},
		"jwk of a private key":        {`,"jwk":{"kty":"OKP","crv":"Ed25519","x":"` + strings.Repeat("A", 43) + `","d":"` + strings.Repeat("A", 43) + `"}`, CheckHeader},
		"jwk of the key that signed":  {`,"jwk":` + string(own), CheckHeader},
		"JWK":                         {`,"JWK":1`, CheckHeader},
		"jwk by an escape":            {`,"jwk":5`, CheckHeader},
		"x5c that is a number":        {`,"x5c":5`, CheckHeader},
		"x5c that is a string":        {`,"x5c":"` + der + `"`, CheckHeader},
		"x5c of no certificate":       {`,"x5c":["` + der + `"]`, CheckHeader},
		"x5c that is no base64":       {`,"x5c":["?"]`, CheckHeader},
		"x5c that is empty":           {`,"x5c":[]`, CheckHeader},
		"X5C":                         {`,"X5C":[]`, CheckHeader},
		"nonce that is a number":      {`,"nonce":5`, CheckHeader},
		"nonce that is null":          {`,"nonce":null`, CheckHeader},
		"nonce that is an object":     {`,"nonce":{}`, CheckHeader},
		"Nonce":                       {`,"Nonce":"n"`, CheckHeader},
		"nonce":                       {`,"nonce":"n"`, ""},
		"a number over float64":       {`,"foo":1e999`, CheckHeader},
		"a number over float64 below": {`,"foo":[{"a":-1e309}]`, CheckHeader},
		"the largest of float64":      {`,"foo":1.7976931348623157e308`, ""},
		"an integer of 30 digits":     {`,"foo":123456789012345678901234567890`, ""},
		"a place of a key":            {`,"jku":"https://evil.example","x5u":"https://evil.example"`, ""},
		"a thumbprint":                {`,"x5t":"AA","x5t#S256":"AA"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			token := f.token(t, `{"alg":"ES256","kid":"k"`+test.member+`}`, forgedPayload)
			if err := f.verifies(token); test.want != "" {
				refusedFor(t, test.member, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// A header is written as encoding/json writes the same struct.
func TestEncodeHeader(t *testing.T) {
	for _, keyID := range []string{"abcdef", "k", `"`, `\`, "<&>", "é\u2028", "a b\n\t\x01", strings.Repeat("long", 256)} {
		for _, typ := range []string{"", "JWT", `a"b`} {
			want, err := json.Marshal(struct {
				Alg Algorithm `json:"alg"`
				Kid string    `json:"kid"`
				Typ string    `json:"typ,omitempty"`
			}{ES256, keyID, typ})
			if err != nil {
				t.Fatal(err)
			}
			text := appendHeader(nil, ES256, keyID, typ)
			if got, err := base64.RawURLEncoding.DecodeString(string(text)); err != nil || string(got) != string(want) {
				t.Errorf("got %s, want %s (%v)", got, want, err)
			}
			h, err := parseHeader(want)
			if err != nil || h.keyID != keyID || h.typ != typ || string(h.algorithm) != "ES256" {
				t.Errorf("%s: read back as %q, %v", want, h, err)
			}
		}
	}
}

func TestCheckKeyID(t *testing.T) {
	for keyID, good := range map[string]bool{
		"k": true, strings.Repeat("k", MaxKeyIDSize): true, "é": true,
		"": false, strings.Repeat("k", MaxKeyIDSize+1): false, "\xff": false,
	} {
		t.Run(keyID, func(t *testing.T) {
			if err := checkKeyID(keyID); good && err != nil {
				t.Errorf("%.20q: %v", keyID, err)
			} else if !good {
				refusedFor(t, keyID, err, CheckKeyID)
			}
		})
	}
}

// FuzzParseHeader: encoding/json reads an accepted header in the same way.
func FuzzParseHeader(f *testing.F) {
	for _, text := range []string{`{"alg":"ES256","kid":"k","typ":"JWT"}`, `{"ALG":"ES256"}`, `{"alg":"\u0045S256","x":[{}]}`, `{"alg":"x","crit":[]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := parseHeader(text)
		if err != nil {
			return
		}
		var naive map[string]any
		if err := json.Unmarshal(text, &naive); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for name, got := range map[string]string{"alg": string(h.algorithm), "kid": h.keyID, "typ": h.typ} {
			t.Run(name, func(t *testing.T) {
				if want, _ := naive[name].(string); got != want {
					t.Errorf("%q: %s is %q, want %q", text, name, got, want)
				}
			})
		}
		for _, name := range []string{"crit", "b64", "jwk", "x5c"} {
			if _, ok := naive[name]; ok {
				t.Errorf("%q was accepted", text)
			}
		}
	})
}
