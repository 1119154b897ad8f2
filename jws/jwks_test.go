package jws

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// allKeys are keys of every algorithm, each with an ID of its own.
func allKeys(t testing.TB) []*Key {
	t.Helper()
	var keys []*Key
	for _, algorithm := range []Algorithm{RS256, PS256, ES256, ES384, ES512, EdDSA} {
		k, err := NewKey(forgers()[algorithm].signer.Public(), KeyOptions{KeyID: "k-" + string(algorithm), Algorithm: algorithm})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	return keys
}

func TestJWKSRoundTrip(t *testing.T) {
	keys := allKeys(t)
	for n := range len(keys) + 1 {
		text, err := MarshalJWKS(keys[:n])
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseJWKS(text)
		if err != nil || len(got) != n {
			t.Fatalf("%d keys: got %d, %v", n, len(got), err)
		}
		for i := range got {
			if got[i].KeyID() != keys[i].KeyID() || got[i].Algorithm() != keys[i].Algorithm() {
				t.Errorf("key %d: got %s", i, got[i].KeyID())
			}
		}
		if again, err := MarshalJWKS(got); err != nil || !bytes.Equal(again, text) {
			t.Errorf("got %s, want %s (%v)", again, text, err)
		}
	}
	k, err := parseJWK([]byte(rfcKey))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := MarshalJWKS([]*Key{k}); err != nil || string(text) != `{"keys":[`+rfcKey+`]}` {
		t.Errorf("got %s, %v", text, err)
	}
}

// Keys of other kinds are passed over; the rest stays in its order.
func TestJWKSIgnores(t *testing.T) {
	with := func(name, value string) string { return replace(t, []byte(rfcKey), name, value) }
	text := `{"x":[{}],"keys":[` + strings.Join([]string{
		with("kty", `"AKP"`), with("crv", `"secp256k1"`), with("alg", `"ES256K"`), with("use", `"enc"`), with("key_ops", `["encrypt"]`),
		`{"kty":"RSA","use":"enc","alg":"RSA-OAEP","n":"AQ","e":"Aw"}`, `{"kty":"OKP","crv":"X25519","x":"AA"}`, rfcKey, with("use", `"enc"`),
	}, ",") + `],"y":1}`
	keys, err := ParseJWKS([]byte(text))
	if err != nil || len(keys) != 1 || keys[0].KeyID() != "k" {
		t.Errorf("got %v, %v", keys, err)
	}
	// One public key may stand for two algorithms under one ID.
	rsa, err := forgers()[RS256].key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	keys, err = ParseJWKS([]byte(`{"keys":[` + string(rsa) + `,` + replace(t, rsa, "alg", `"PS256"`) + `]}`))
	if err != nil || len(keys) != 2 {
		t.Errorf("got %v, %v", keys, err)
	}
}

// An unfit key leaves the others as they are (RFC 7517, section 5).
func TestJWKSWithUnfitKey(t *testing.T) {
	with := func(name, value string) string { return replace(t, []byte(rfcKey), name, value) }
	for name, unfit := range map[string]string{
		"null":                     "null",
		"no object":                `"AA"`,
		"no kty":                   "{}",
		"a kid of another type":    with("kid", "1"),
		"a known name in capitals": strings.Replace(rfcKey, `"alg"`, `"ALG"`, 1),
		"a point off the curve":    with("x", `"`+strings.Repeat("A", 43)+`"`),
		"a short coordinate":       with("x", `"AA"`),
		"padded base64":            with("x", `"`+member(t, []byte(rfcKey), "x")+`="`),
		"a weak key":               `{"kty":"RSA","n":"` + b64(strings.Repeat("\xff", 128)) + `","e":"AQAB"}`,
		"alg and kty that differ":  with("alg", `"RS256"`),
		"the name of a fit key":    with("use", `"enc"`),
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseJWKS([]byte(`{"keys":[` + unfit + "," + rfcKey + `]}`))
			if err != nil || len(keys) != 1 || keys[0].KeyID() != "k" {
				t.Errorf("got %v, %v, want the other key", keys, err)
			}
		})
	}
}

// A set whose keys are all unfit says why, but not of each if they are many.
func TestJWKSWithoutFitKey(t *testing.T) {
	unfit := strings.TrimSuffix(strings.Repeat(`{"kty":"EC","kid":"a","use":"enc"},`, MaxJWKSKeys), ",")
	_, err := ParseJWKS([]byte(`{"keys":[` + unfit + `]}`))
	text := fmt.Sprint(err)
	if !errors.Is(err, checkKeySet) || !strings.Contains(text, "256 unfit of 256 keys") {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(text, `"a": key-use: got use enc`); n != maxReasons {
		t.Errorf("%d reasons, want %d: %v", n, maxReasons, err)
	}
}

// A key that is repeated is one key: as the set-up of AWS' pod identity webhook writes it,
// named and with an empty kid, and as kube-apiserver does if two of its files hold it.
func TestJWKSRepeats(t *testing.T) {
	keyID := deriveKeyID(forgers()[RS256].signer.Public())
	text, err := forgers()[RS256].key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	named := replace(t, text, "kid", `"`+keyID+`"`)
	for name, again := range map[string]string{
		"byte for byte": named, "with an empty kid": replace(t, text, "kid", `""`), "without a kid": replace(t, text, "kid", ""),
		"without alg and use": replace(t, []byte(replace(t, []byte(named), "alg", "")), "use", ""),
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseJWKS([]byte(`{"keys":[` + named + "," + again + `]}`))
			if err != nil || len(keys) != 1 || keys[0].KeyID() != keyID {
				t.Errorf("got %v, %v, want %s once", keys, err, keyID)
			}
		})
	}
}

func TestJWKSRefused(t *testing.T) {
	with := func(name, value string) string { return replace(t, []byte(rfcKey), name, value) }
	set := func(keys ...string) string { return `{"keys":[` + strings.Join(keys, ",") + `]}` }
	good := with("kid", `"other"`)
	if keys, err := ParseJWKS([]byte(set(good, rfcKey))); err != nil || len(keys) != 2 {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text string
		want Check
	}{
		"nothing":                     {"", checkKeySet},
		"null":                        {"null", checkKeySet},
		"an array":                    {"[" + rfcKey + "]", checkKeySet},
		"no keys":                     {"{}", checkKeySet},
		"a single key":                {rfcKey, checkKeySet},
		"Keys":                        {`{"Keys":[` + rfcKey + `]}`, checkKeySet},
		"keys null":                   {`{"keys":null}`, checkKeySet},
		"keys an object":              {`{"keys":` + rfcKey + `}`, checkKeySet},
		"keys twice":                  {`{"keys":[],"keys":[` + rfcKey + `]}`, checkKeySet},
		"KEYS too":                    {`{"keys":[],"KEYS":[` + rfcKey + `]}`, checkKeySet},
		"bytes after":                 {set(rfcKey) + "{}", checkKeySet},
		"cut off":                     {`{"keys":[` + rfcKey + `]`, checkKeySet},
		"too long":                    {set(good, rfcKey) + strings.Repeat(" ", maxJWKSSize), checkKeySet},
		"too many":                    {set(append([]string{rfcKey}, strings.Split(strings.Repeat("{},", MaxJWKSKeys-1)+"{}", ",")...)...), checkKeySet},
		"one key ID for two keys":     {set(rfcKey, strangerJWK(t)), checkKeySet},
		"a member twice":              {set(good, strings.Replace(rfcKey, `"kty"`, `"kty":"EC","kty"`, 1)), checkJWK},
		"only unfit keys":             {set(with("use", `"enc"`), with("x", `"AA"`)), checkKeySet},
		"a private key that is unfit": {set(good, replace(t, []byte(with("kid", "1")), "d", `"AA"`)), checkPrivate},
		"a private key in capitals":   {set(good, with("D", `"AA"`)), checkPrivate},
		"a private key":               {set(good, with("d", `"AA"`)), checkPrivate},
		"a private key not for us":    {set(good, replace(t, []byte(with("use", `"enc"`)), "d", `"AA"`)), checkPrivate},
		"a private key of its own":    {set(good, `{"kty":"AKP","priv":"AA"}`), checkPrivate},
		"a symmetric key":             {set(good, `{"kty":"oct","k":"AA"}`), checkPrivate},
		"a symmetric key without it":  {set(good, `{"kty":"oct"}`), checkPrivate},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := ParseJWKS([]byte(test.text))
			refusedFor(t, name, err, test.want)
			if keys != nil {
				t.Errorf("%s: keys with the error", name)
			}
		})
	}
}

// A file that a Windows program wrote is refused for its byte order mark.
func TestJWKSByteOrderMark(t *testing.T) {
	for _, mark := range []string{"\ufeff", "\xff\xfe"} {
		if _, err := ParseJWKS([]byte(mark + `{"keys":[` + rfcKey + `]}`)); !errors.Is(err, checkKeySet) || !strings.Contains(err.Error(), "byte order mark") {
			t.Errorf("%q: got %v", mark, err)
		}
	}
}

func strangerJWK(t testing.TB) string {
	t.Helper()
	text, err := strangers()[ES256].key.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMarshalJWKSLikeKubernetes: the set is what NewOpenIDMetadataProvider of Kubernetes 1.36.3
// (pkg/serviceaccount) makes of its keys, which are public and were made for this file.
func TestMarshalJWKSLikeKubernetes(t *testing.T) {
	recorded, err := os.ReadFile("testdata/kubernetes_jwks.json")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseJWKS(recorded)
	if err != nil || len(keys) != 5 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	if text, err := MarshalJWKS(keys); err != nil || !bytes.Equal(text, recorded) {
		t.Errorf("got %s, %v, want %s", text, err, recorded)
	}
}

func TestMarshalJWKSRefused(t *testing.T) {
	k := forgers()[ES256].key
	for name, test := range map[string]struct {
		keys []*Key
		want Check
	}{
		"nil":       {[]*Key{k, nil}, checkKey},
		"zero":      {[]*Key{{}}, checkKey},
		"ambiguous": {[]*Key{k, strangers()[ES256].key}, checkKeySet},
		"too many":  {make([]*Key, MaxJWKSKeys+1), checkKeySet},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := MarshalJWKS(test.keys)
			refusedFor(t, name, err, test.want)
			if text != nil {
				t.Errorf("%s: got %s", name, text)
			}
		})
	}
	once, err := MarshalJWKS([]*Key{k})
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := MarshalJWKS([]*Key{k, k}); err != nil || !bytes.Equal(twice, once) {
		t.Errorf("a key twice: got %s, %v, want %s", twice, err, once)
	}
	many := make([]*Key, MaxJWKSKeys)
	for i := range many {
		var err error
		if many[i], err = NewKey(k.Public(), KeyOptions{KeyID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := MarshalJWKS(many)
	if err != nil {
		t.Fatal(err)
	}
	if keys, err := ParseJWKS(text); err != nil || len(keys) != MaxJWKSKeys {
		t.Errorf("the largest set: %v", err)
	}
}

// FuzzParseJWKS: an accepted set is written in one way that is read as the same set.
func FuzzParseJWKS(f *testing.F) {
	testkit.BeginFuzz(f)
	text, err := MarshalJWKS(allKeys(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"keys":[` + rfcKey + `]}`))
	f.Add([]byte(`{"keys":[` + rfcKey + `,{"kty":"AKP"},{"use":"enc"}],"x":1}`))
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AA"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseJWKS(text)
		if err != nil {
			if keys != nil {
				t.Fatal("keys with the error")
			}
			return
		}
		written, err := MarshalJWKS(keys)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJWKS(written)
		if err != nil || len(again) != len(keys) {
			t.Fatalf("%s: %d keys, %v", written, len(again), err)
		}
		if rewritten, err := MarshalJWKS(again); err != nil || !bytes.Equal(written, rewritten) {
			t.Fatalf("got %s, want %s (%v)", rewritten, written, err)
		}
	})
}

// TestJWKSSaysWhatASetIs: people take a key, PEM or a page for a set.
func TestJWKSSaysWhatASetIs(t *testing.T) {
	for name, text := range map[string]string{
		"a single key":                rfcKey,
		"certificates by key ID":      `{"5f1a": "-----BEGIN CERTIFICATE-----\n"}`,
		"PEM":                         "-----BEGIN PUBLIC KEY-----\n",
		"a page":                      "<!DOCTYPE html>\n",
		"an array":                    "[" + rfcKey + "]",
		"nothing":                     "",
		"keys that are null":          `{"keys": null}`,
		"a discovery document":        `{"issuer": "https://issuer.example", "jwks_uri": "https://issuer.example/keys"}`,
		"a set in a text of the JSON": `"{\"keys\": []}"`,
	} {
		if _, err := ParseJWKS([]byte(text)); !errors.Is(err, checkKeySet) || !strings.Contains(err.Error(), "want "+wantKeySet) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
