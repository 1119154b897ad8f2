package jws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/strictjson"
)

// The key of RFC 7515, appendix A.3, as kube-apiserver serves such keys.
const rfcKey = `{"use":"sig","kty":"EC","kid":"k","crv":"P-256","alg":"ES256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`

// parseJWK reads a text that is one key.
func parseJWK(text []byte) (*Key, error) {
	r := strictjson.NewReader(text)
	j, err := readJWK(r)
	if err == nil {
		err = refuse(checkJWK, r.End())
	}
	if err != nil {
		return nil, err
	}
	return j.key()
}

// A key is written in one way, and read back as it was.
func TestJWKRoundTrip(t *testing.T) {
	for algorithm, f := range forgers() {
		text, err := f.key.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		k, err := parseJWK(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		again, err := json.Marshal(k)
		if err != nil || !bytes.Equal(again, text) {
			t.Errorf("got %s, want %s (%v)", again, text, err)
		}
		if k.Algorithm() != algorithm || k.KeyID() != "k" {
			t.Errorf("%s: got %s %s", algorithm, k.Algorithm(), k.KeyID())
		}
		token, err := Parse(f.good(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Verify(token); err != nil {
			t.Errorf("%s: %v", algorithm, err)
		}
	}
	k, err := parseJWK([]byte(rfcKey))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := k.MarshalJSON(); err != nil || string(text) != rfcKey {
		t.Errorf("got %s, want %s (%v)", text, rfcKey, err)
	}
	for _, none := range []*Key{nil, {}} {
		_, err := none.MarshalJSON()
		refusedFor(t, "no key", err, checkKey)
	}
}

// The order of members and other members do not matter. What programs write for a
// member that was never set, null, "" or [], is no member.
func TestJWKAccepted(t *testing.T) {
	rsa, err := forgers()[RS256].key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	n := member(t, rsa, "n")
	const point = `"crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"`
	const derived = ""
	for text, want := range map[string]struct {
		algorithm Algorithm
		keyID     string
	}{
		`{"kty":"EC",` + point + `}`:                                                          {ES256, derived},
		"{" + point + `,"kid":"a","kty":"EC"}`:                                                {ES256, "a"},
		` {"key_ops":["verify"],"kty":"EC",` + point + "}\n":                                  {ES256, derived},
		`{"key_ops":["sign","verify"],"use":"sig","kty":"EC",` + point + `}`:                  {ES256, derived},
		`{"kty":"EC","x5c":["MII"],"x5t":"a","x5u":"u","ext":true,` + point + `}`:             {ES256, derived},
		`{"kty":"EC","use":null,"key_ops":null,"alg":null,"kid":null,"d":null,` + point + `}`: {ES256, derived},
		`{"kty":"EC","use":"","key_ops":[],"alg":"","kid":"","d":"","n":"",` + point + `}`:    {ES256, derived},
		`{"kty":"RSA","e":"AQAB","n":"` + n + `","p":null,"oth":[],"k":"","x5c":[],"x":""}`:   {RS256, derived},
		`{"kty":"RSA","e":"AQAB","n":"` + n + `"}`:                                            {RS256, derived},
		`{"kty":"RSA","e":"AQAB","alg":"PS512","n":"` + n + `"}`:                              {PS512, derived},
		`{"kty":"RSA","e":"Aw","n":"` + n + `"}`:                                              {RS256, derived},
		`{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`:     {EdDSA, derived},
	} {
		t.Run(text, func(t *testing.T) {
			k, err := parseJWK([]byte(text))
			if err != nil {
				t.Errorf("%s: %v", text, err)
				return
			}
			keyID := want.keyID
			if keyID == derived {
				keyID = deriveKeyID(k.Public())
			}
			if k.Algorithm() != want.algorithm || k.KeyID() != keyID {
				t.Errorf("%s: got %s %s, want %s %s", text, k.Algorithm(), k.KeyID(), want.algorithm, keyID)
			}
		})
	}
}

// member returns one text member of a JSON object.
func member(t testing.TB, object []byte, name string) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	text, ok := members[name].(string)
	if !ok {
		t.Fatalf("%s has no %s", object, name)
	}
	return text
}

// replace puts another value, given as JSON, into a member; without one it is left out.
func replace(t testing.TB, object []byte, name, value string) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		t.Fatal(err)
	}
	members[name] = json.RawMessage(value)
	if value == "" {
		delete(members, name)
	}
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// operations is an array of so many key_ops, all different, that are not ours.
func operations(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%q", fmt.Sprint(i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// One change makes a good key a bad one.
func TestJWKRefused(t *testing.T) {
	jwks := make(map[Algorithm][]byte)
	for _, algorithm := range []Algorithm{RS256, ES256, ES512, EdDSA} {
		text, err := forgers()[algorithm].key.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		jwks[algorithm] = text
	}
	zero := func(algorithm Algorithm, name string) string { // a zero byte before it
		octets, err := encoding.DecodeString(member(t, jwks[algorithm], name))
		if err != nil {
			t.Fatal(err)
		}
		return `"` + b64("\x00"+string(octets)) + `"`
	}
	short := `"` + b64(strings.Repeat("a", 31)) + `"`
	long := `"` + b64(strings.Repeat("a", 33)) + `"`
	for _, test := range []struct {
		algorithm   Algorithm
		name, value string
		want        Check
	}{
		{ES256, "kty", ``, checkJWK},
		{ES256, "kty", `""`, checkJWK},
		{ES256, "kty", `1`, checkJWK},
		{ES256, "kty", `null`, checkJWK},
		{ES256, "kty", `"ec"`, checkKeyType},
		{ES256, "kty", `"RSA"`, checkJWK},
		{ES256, "kty", `"OKP"`, checkKeyType}, // the curve is not one of OKP
		{ES256, "kty", `"oct"`, checkPrivate},
		{ES256, "kty", `"AKP"`, checkKeyType},
		{ES256, "use", `"enc"`, checkKeyUse},
		{ES256, "use", `"SIG"`, checkKeyUse},
		{ES256, "use", `["sig"]`, checkJWK},
		{ES256, "key_ops", `["sign"]`, checkKeyUse},
		{ES256, "key_ops", `["encrypt"]`, checkKeyUse},
		{ES256, "key_ops", `["verify","encrypt"]`, checkKeyUse},
		{ES256, "key_ops", `["verify","verify"]`, checkJWK},
		{ES256, "key_ops", `"verify"`, checkJWK},
		{ES256, "key_ops", `[` + strings.Repeat(`"a",`, maxOperations) + `"verify"]`, checkJWK},
		{ES256, "key_ops", `[1]`, checkJWK},
		{ES256, "alg", `"ES384"`, checkJWK},
		{ES256, "alg", `"RS256"`, checkJWK},
		{ES256, "alg", `"ES521"`, CheckAlgorithm},
		{ES256, "alg", `"HS256"`, CheckAlgorithm},
		{ES256, "alg", `"none"`, CheckAlgorithm},
		{ES256, "alg", `1`, checkJWK},
		{ES256, "kid", `"` + strings.Repeat("k", MaxKeyIDSize+1) + `"`, CheckKeyID},
		{ES256, "kid", `1`, checkJWK},
		{ES256, "kid", `"\ud800"`, checkJWK},
		{ES256, "crv", ``, checkJWK},
		{ES256, "crv", `"P-224"`, checkKeyType},
		{ES256, "crv", `"p-256"`, checkKeyType},
		{ES256, "crv", `"secp256k1"`, checkKeyType},
		{ES256, "crv", `"P-384"`, checkJWK}, // the coordinates are too short
		{ES256, "x", ``, checkJWK},
		{ES256, "y", ``, checkJWK},
		{ES256, "x", `""`, checkJWK},
		{ES256, "x", short, checkJWK},
		{ES256, "x", long, checkJWK},
		{ES256, "x", zero(ES256, "x"), checkJWK},
		{ES256, "y", short, checkJWK},
		{ES256, "y", `"` + member(t, jwks[ES256], "x") + `"`, checkKey},
		{ES256, "x", `"` + strings.Repeat("A", 43) + `"`, checkKey},
		{ES256, "x", `"` + member(t, jwks[ES256], "x") + `="`, checkJWK},
		{ES256, "x", `"` + member(t, jwks[ES256], "x") + `\n"`, checkJWK},
		{ES256, "x", `1`, checkJWK},
		{ES256, "d", `"AA"`, checkPrivate},
		{ES256, "D", `"AA"`, checkPrivate},
		{ES256, "d", `{}`, checkPrivate},
		{ES256, "d", `0`, checkPrivate},
		{ES256, "d", `[null]`, checkPrivate},
		{ES256, "kty", `null`, checkJWK},
		{ES256, "y", `null`, checkJWK},
		{ES256, "key_ops", `[null]`, checkJWK},
		{ES256, "k", `"AA"`, checkPrivate},
		{ES256, "KTY", `"EC"`, checkJWK},
		{ES256, "Use", `"sig"`, checkJWK},
		{ES256, "Key_Ops", `["verify"]`, checkJWK},
		{RS256, "n", ``, checkJWK},
		{RS256, "e", ``, checkJWK},
		{RS256, "e", `""`, checkJWK},
		{RS256, "e", `"AA"`, checkJWK},
		{RS256, "e", `"AAEAAQ"`, checkJWK},
		{RS256, "e", `"AQ"`, checkKey},
		{RS256, "e", `"Ag"`, checkKey},
		{RS256, "e", `"AQAA"`, checkKey},
		{RS256, "e", `"_____w"`, checkKey},
		{RS256, "e", `"AQAAAAE"`, checkKey},
		{RS256, "n", zero(RS256, "n"), checkJWK},
		{RS256, "n", `"` + b64(strings.Repeat("\xff", 255)) + `"`, checkKey},
		{RS256, "n", `"` + b64(strings.Repeat("\xff", 1025)) + `"`, checkKey},
		{RS256, "n", `"` + b64(string(rocaModulus(t).Bytes())) + `"`, checkKey},
		{RS256, "n", `"` + member(t, jwks[RS256], "n") + `=="`, checkJWK},
		{RS256, "alg", `"ES256"`, checkJWK},
		{RS256, "alg", `"RSA-OAEP"`, CheckAlgorithm},
		{RS256, "d", `"AA"`, checkPrivate},
		{RS256, "p", `"AA"`, checkPrivate},
		{RS256, "q", `"AA"`, checkPrivate},
		{RS256, "dp", `"AA"`, checkPrivate},
		{RS256, "dq", `"AA"`, checkPrivate},
		{RS256, "qi", `"AA"`, checkPrivate},
		{RS256, "oth", `[{"r":"AQAB"}]`, checkPrivate},
		{RS256, "priv", `"AA"`, checkPrivate},
		{ES512, "alg", `"ES521"`, CheckAlgorithm},
		{ES512, "x", `"` + b64(strings.Repeat("\x00", 65)) + `"`, checkJWK},
		{ES512, "x", `"` + member(t, jwks[ES512], "x") + `?"`, checkJWK}, // 66 bytes stand before it
		{ES256, "y", `"?"`, checkJWK},
		{ES256, "y", short, checkJWK},
		{RS256, "e", `"AQAAAAAAAAAD"`, checkKey}, // 2^64 + 3
		{RS256, "e", `"_____w"`, checkKey},       // 2^32 - 1
		{RS256, "e", `"gAAAAQ"`, checkKey},       // 2^31 + 1
		{ES256, "key_ops", operations(maxOperations), checkKeyUse},
		{ES256, "key_ops", operations(maxOperations + 1), checkJWK},
		{ES512, "x", `"` + b64(strings.Repeat("\xff", 66)) + `"`, checkKey},
		{EdDSA, "crv", `"Ed448"`, checkKeyType},
		{EdDSA, "crv", `"X25519"`, checkKeyType},
		{EdDSA, "crv", ``, checkJWK},
		{EdDSA, "x", short, checkJWK},
		{EdDSA, "x", long, checkJWK},
		{EdDSA, "x", ``, checkJWK},
		{EdDSA, "alg", `"ES256"`, checkJWK},
		{EdDSA, "alg", `"Ed25519"`, CheckAlgorithm},
		{EdDSA, "d", `"AA"`, checkPrivate},
	} {
		t.Run(fmt.Sprint(test.algorithm), func(t *testing.T) {
			text := replace(t, jwks[test.algorithm], test.name, test.value)
			k, err := parseJWK([]byte(text))
			refusedFor(t, fmt.Sprintf("%s with %s %.40s", test.algorithm, test.name, test.value), err, test.want)
			if k != nil {
				t.Error("a key with the error")
			}
		})
	}
}

func TestJWKSyntax(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "null": "null", "an array": "[" + rfcKey + "]", "a text": `"a"`, "a set": `{"keys":[` + rfcKey + `]}`,
		"two":           rfcKey + rfcKey,
		"cut off":       rfcKey[:len(rfcKey)-1],
		"a key twice":   strings.Replace(rfcKey, `"kty":"EC"`, `"kty":"EC","kty":"EC"`, 1),
		"unknown twice": strings.Replace(rfcKey, `"kty":"EC"`, `"kty":"EC","z":1,"z":1`, 1),
		"unknown cases": strings.Replace(rfcKey, `"kty":"EC"`, `"kty":"EC","z":1,"Z":1`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseJWK([]byte(text))
			refusedFor(t, name, err, checkJWK)
		})
	}
}

// FuzzParseJWK: an accepted key is written in one way that is read as the same key.
func FuzzParseJWK(f *testing.F) {
	for _, forger := range forgers() {
		text, err := forger.key.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(rfcKey))
	f.Add([]byte(`{"kty":"oct","k":"AA"}`))
	f.Add([]byte(`{"key_ops":["verify"],"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"\u003c"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := parseJWK(text)
		if err != nil {
			if k != nil {
				t.Fatal("a key with the error")
			}
			return
		}
		written, err := k.MarshalJSON()
		if err != nil || !json.Valid(written) {
			t.Fatalf("%s: %v", written, err)
		}
		again, err := parseJWK(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		rewritten, err := again.MarshalJSON()
		if err != nil || !bytes.Equal(written, rewritten) {
			t.Fatalf("got %s, want %s (%v)", rewritten, written, err)
		}
	})
}
