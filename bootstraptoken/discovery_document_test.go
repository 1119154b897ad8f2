package bootstraptoken

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func mustToken(t testing.TB, s string) Token {
	t.Helper()
	token, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// signedData are the data with the signatures of these tokens.
func signedData(t testing.TB, data map[string]string, tokens ...Token) map[string]string {
	t.Helper()
	var secrets []*Secret
	for _, token := range tokens {
		secrets = append(secrets, &Secret{Token: token, Usages: Usages{Signing: true}})
	}
	signing, err := Sign(data, encoded(t, secrets...), signingTime)
	if err != nil {
		t.Fatal(err)
	}
	return signing.Data
}

func TestVerify(t *testing.T) {
	ca := newTestCA(t, "one")
	want := info("https://a:6443", ca)
	data, err := NewClusterInfoData(want)
	if err != nil {
		t.Fatal(err)
	}
	token := mustToken(t, "abcdef.0123456789abcdef")
	data = signedData(t, data, token)
	if got, err := Verify(data, token); err != nil || !got.Equal(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	key := SignatureKeyPrefix + "abcdef"
	change := func(key string, value func(string) string) map[string]string {
		changed := maps.Clone(data)
		changed[key] = value(changed[key])
		return changed
	}
	noDocument := signedData(t, map[string]string{KubeconfigKey: "x"}, token)
	for name, test := range map[string]struct {
		data  map[string]string
		token Token
		want  Check
	}{
		"no token":               {data, Token{}, CheckToken},
		"nothing":                {nil, token, CheckNoKubeconfig},
		"another secret":         {data, mustToken(t, "abcdef.0123456789abcdee"), CheckSignature},
		"another ID":             {data, mustToken(t, "abcdeg.0123456789abcdef"), CheckNoSignature},
		"a line feed more":       {change(KubeconfigKey, func(s string) string { return s + "\n" }), token, CheckSignature},
		"a line feed less":       {change(KubeconfigKey, func(s string) string { return s[:len(s)-1] }), token, CheckSignature},
		"another server":         {change(KubeconfigKey, func(s string) string { return strings.Replace(s, "a:6443", "b:6443", 1) }), token, CheckSignature},
		"no signature":           {change(key, func(string) string { return "" }), token, CheckNoSignature},
		"padded":                 {change(key, func(s string) string { return s + "=" }), token, CheckSignature},
		"a line feed behind":     {change(key, func(s string) string { return s + "\n" }), token, CheckSignature},
		"not detached":           {change(key, func(s string) string { return strings.Replace(s, "..", ".e30.", 1) }), token, CheckSignature},
		"alg none":               {change(key, func(string) string { return "eyJhbGciOiJub25lIn0.." }), token, CheckSignature},
		"another token's header": {change(key, func(string) string { return slowSignature(data[KubeconfigKey], "abcdeg", "0123456789abcdef") }), token, CheckSignature},
		"too large":              {change(KubeconfigKey, func(string) string { return strings.Repeat("x", MaxKubeconfigSize+1) }), token, CheckKubeconfig},
		"signed, no document":    {noDocument, token, CheckKubeconfig},
	} {
		got, err := Verify(test.data, test.token)
		if !errors.Is(err, test.want) || got != nil {
			t.Errorf("%s: %+v, %v, want %v", name, got, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: the error has the secret: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	token := mustToken(f, "abcdef.0123456789abcdef")
	ca := newTestCA(f, "one")
	data, err := NewClusterInfoData(info("https://a", ca))
	if err != nil {
		f.Fatal(err)
	}
	data = signedData(f, data, token)
	signature := data[SignatureKeyPrefix+"abcdef"]
	f.Add(data[KubeconfigKey], signature)
	f.Add(data[KubeconfigKey], signature+"=")
	f.Add("x", slowSignature("x", "abcdef", "0123456789abcdef"))
	f.Fuzz(func(t *testing.T, kubeconfig, signature string) {
		_, err := Verify(map[string]string{KubeconfigKey: kubeconfig, SignatureKeyPrefix + "abcdef": signature}, token)
		if err == nil && signature != slowSignature(kubeconfig, "abcdef", "0123456789abcdef") {
			t.Fatalf("%q verifies over %q", signature, kubeconfig)
		}
	})
}
