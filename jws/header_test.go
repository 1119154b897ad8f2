package jws

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestHeaderAccepted(t *testing.T) {
	for text, want := range map[string]header{
		`{"alg":"ES256","kid":"k","typ":"JWT"}`:                {[]byte("ES256"), "k", "JWT"},
		" {\n\t\"kid\" : \"k\",\r\"alg\":\"ES256\" } ":         {[]byte("ES256"), "k", ""},
		`{"alg":"\u0045S256","kid":"\u006b","typ":"at+jwt"}`:   {[]byte("ES256"), "k", "at+jwt"},
		`{"alg":"x","jwk":{"kty":"oct"},"x5t":"a","cty":null}`: {[]byte("x"), "", ""},
		`{"alg":"x","kids":1,"algorithm":[{}]}`:                {[]byte("x"), "", ""},
		`{}`:                                                   {},
	} {
		got, err := parseHeader([]byte(text))
		if err != nil || string(got.algorithm) != string(want.algorithm) || got.keyID != want.keyID || got.typ != want.typ {
			t.Errorf("%s: got %q, %v", text, got, err)
		}
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
		`{"alg":"ES256","crit":["exp"]}`:       CheckCritical,
		`{"alg":"ES256","crit":[]}`:            CheckCritical,
		`{"alg":"ES256","crit":null}`:          CheckCritical,
		`{"alg":"ES256","crit":["b64"]}`:       CheckCritical,
		`{"b64":false,"alg":"ES256"}`:          CheckCritical,
		`{"alg":"ES256","b64":true}`:           CheckCritical,
		`{"alg":"ES256","\u0062\u00364":true}`: CheckCritical,
	} {
		_, err := parseHeader([]byte(text))
		refusedFor(t, text, err, want)
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
			text := encodeHeader(ES256, keyID, typ)
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
		if err := checkKeyID(keyID); good && err != nil {
			t.Errorf("%.20q: %v", keyID, err)
		} else if !good {
			refusedFor(t, keyID, err, CheckKeyID)
		}
	}
}
