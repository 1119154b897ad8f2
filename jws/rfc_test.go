package jws

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// An rfcExample is one in testdata/rfc.json: a token in compact form, the public key that
// it verifies with, both as the document prints them with line breaks taken out, and the
// payload.
type rfcExample struct {
	Source    string          `json:"source"`
	Algorithm Algorithm       `json:"algorithm"`
	JWK       json.RawMessage `json:"jwk"`
	Token     string          `json:"token"`
	Payload   string          `json:"payload"`
}

// key is the key bound to the example's algorithm. (Examples print one RSA key for two
// algorithms, without alg.)
func (e *rfcExample) key(t *testing.T) *Key {
	t.Helper()
	parsed, err := parseJWK(e.JWK)
	if err != nil {
		t.Fatal(err)
	}
	key, err := NewKey(parsed.Public(), KeyOptions{KeyID: parsed.KeyID(), Algorithm: e.Algorithm})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestRFCExamples verifies the examples of RFC 7515 (appendix A), RFC 7520 (section 4)
// and RFC 8037 (appendix A) whose algorithm this package has, and refuses each where one
// of its segments is another.
func TestRFCExamples(t *testing.T) {
	data, err := os.ReadFile("testdata/rfc.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples []rfcExample
	if err := json.Unmarshal(data, &examples); err != nil {
		t.Fatal(err)
	}
	if len(examples) != 7 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, example := range examples {
		t.Run(example.Source, func(t *testing.T) {
			set, err := NewStaticKeySet(example.key(t))
			if err != nil {
				t.Fatal(err)
			}
			verified, err := VerifySignature(context.Background(), example.Token, set)
			if err != nil {
				t.Fatal(err)
			}
			if string(verified.Payload) != example.Payload || verified.Token.Algorithm() != example.Algorithm {
				t.Errorf("got %s %q", verified.Token.Algorithm(), verified.Payload)
			}
			refuseEveryChange(t, example, set)
		})
	}
}

// refuseEveryChange changes each character of a token to another of the alphabet. A signature
// of ES512 takes milliseconds to verify: of such a token it changes every eighth, and the last
// two of each part, whose bits need not all count; all of them with NODEATTEST_LONG=1.
func refuseEveryChange(t *testing.T, example rfcExample, set KeySet) {
	t.Helper()
	token, few := example.Token, example.Algorithm == ES512 && os.Getenv("NODEATTEST_LONG") != "1"
	for i := range len(token) {
		if end := token[i:] + "."; few && i%8 != 0 && strings.IndexByte(end, '.') > 2 {
			continue
		}
		changed := []byte(token)
		if changed[i] == 'A' {
			changed[i] = 'B'
		} else {
			changed[i] = 'A'
		}
		if _, err := VerifySignature(context.Background(), string(changed), set); err == nil {
			t.Errorf("accepted with another character %d", i)
		}
	}
}

// Examples that are out of scope are refused.
func TestRFCExamplesOutOfScope(t *testing.T) {
	const payload = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
	for source, example := range map[string]struct {
		token string
		want  Check
	}{
		"RFC 7515, appendix A.1, hs256": {"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + payload + ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", CheckAlgorithm},
		"RFC 7515, appendix A.5, none":  {"eyJhbGciOiJub25lIn0." + payload + ".", CheckAlgorithm},
		"RFC 7515, appendix A.6, JSON":  {`{"payload":"` + payload + `","signatures":[]}`, checkForm},
		"RFC 7515, appendix E, crit":    {b64(`{"alg":"ES256","crit":["http://example.invalid/UNDEFINED"],"http://example.invalid/UNDEFINED":true}`) + ".RkFJTA.", checkCritical},
		"RFC 7797, section 4.2, b64":    {b64(`{"alg":"ES256","b64":false,"crit":["b64"]}`) + ".JC4wMg.", checkCritical},
	} {
		t.Run(source, func(t *testing.T) {
			_, err := Parse(example.token)
			refusedFor(t, source, err, example.want)
		})
	}
}
