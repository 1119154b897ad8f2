package bootstraptoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"maps"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

var signingTime = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func signingSecret(t testing.TB, token string, expiration time.Time) *Secret {
	t.Helper()
	parsed, err := Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	return &Secret{Token: parsed, Expiration: expiration, Usages: Usages{Signing: true}}
}

// slowSignature is the signature as the design document describes it.
func slowSignature(kubeconfig, id, secret string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	header := b64([]byte(`{"alg":"HS256","kid":"` + id + `"}`))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + b64([]byte(kubeconfig))))
	return header + ".." + b64(mac.Sum(nil))
}

func TestSign(t *testing.T) {
	const kubeconfig = "apiVersion: v1\n"
	good := slowSignature(kubeconfig, "abcdef", "0123456789abcdef")
	secret := func(change func(*Secret)) []*Secret {
		s := signingSecret(t, "abcdef.0123456789abcdef", time.Time{})
		if change != nil {
			change(s)
		}
		return []*Secret{s}
	}
	key := SignatureKeyPrefix + "abcdef"
	for name, test := range map[string]struct {
		data    map[string]string
		secrets []*Secret
		want    map[string]string
		changed bool
	}{
		"new":                     {map[string]string{"kubeconfig": kubeconfig}, secret(nil), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"there":                   {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(nil), map[string]string{"kubeconfig": kubeconfig, key: good}, false},
		"of another kubeconfig":   {map[string]string{"kubeconfig": kubeconfig, key: slowSignature("x", "abcdef", "0123456789abcdef")}, secret(nil), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"of an old secret":        {map[string]string{"kubeconfig": kubeconfig, key: slowSignature(kubeconfig, "abcdef", "0123456789abcdee")}, secret(nil), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"empty":                   {map[string]string{"kubeconfig": kubeconfig, key: ""}, secret(nil), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"of a token that is gone": {map[string]string{"kubeconfig": kubeconfig, key: good, SignatureKeyPrefix + "ghijkl": "x"}, secret(nil), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"of no token's form":      {map[string]string{"kubeconfig": kubeconfig, SignatureKeyPrefix: "x", SignatureKeyPrefix + "ABC": "y"}, nil, map[string]string{"kubeconfig": kubeconfig}, true},
		"others stay":             {map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig": "a", "x": "", "JWS-kubeconfig-abcdef": "b"}, nil, map[string]string{"kubeconfig": kubeconfig, "jws-kubeconfig": "a", "x": "", "JWS-kubeconfig-abcdef": "b"}, false},
		"none":                    {map[string]string{"kubeconfig": kubeconfig}, nil, map[string]string{"kubeconfig": kubeconfig}, false},
		"expires now":             {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(func(s *Secret) { s.Expiration = signingTime }), map[string]string{"kubeconfig": kubeconfig}, true},
		"expires in a moment":     {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(func(s *Secret) { s.Expiration = signingTime.Add(1) }), map[string]string{"kubeconfig": kubeconfig, key: good}, false},
		"not for signing":         {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(func(s *Secret) { s.Usages = Usages{Authentication: true} }), map[string]string{"kubeconfig": kubeconfig}, true},
		"the same twice":          {map[string]string{"kubeconfig": kubeconfig}, append(secret(nil), secret(nil)...), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"a second for nothing":    {map[string]string{"kubeconfig": kubeconfig}, append(secret(nil), &Secret{Token: mustToken(t, "abcdef.aaaaaaaaaaaaaaaa")}), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
	} {
		before := maps.Clone(test.data)
		got, changed, err := Sign(test.data, test.secrets, signingTime)
		if err != nil || changed != test.changed || !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, %v, want %v, %v", name, got, changed, err, test.want, test.changed)
			continue
		}
		if !maps.Equal(test.data, before) {
			t.Errorf("%s: the input was changed", name)
		}
		if again, changed, err := Sign(got, test.secrets, signingTime); err != nil || changed || !maps.Equal(again, got) {
			t.Errorf("%s: signed again: %v, %v, %v", name, again, changed, err)
		}
		got["x"] = "changed"
		if !maps.Equal(test.data, before) {
			t.Errorf("%s: the result is the input", name)
		}
	}
}

func mustToken(t testing.TB, s string) Token {
	t.Helper()
	token, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestSignRefuses(t *testing.T) {
	good := map[string]string{"kubeconfig": "x", SignatureKeyPrefix + "ghijkl": "stale"}
	secret := signingSecret(t, "abcdef.0123456789abcdef", time.Time{})
	for name, test := range map[string]struct {
		data    map[string]string
		secrets []*Secret
		now     time.Time
		want    Check
	}{
		"no data":         {nil, nil, signingTime, CheckNoKubeconfig},
		"no kubeconfig":   {map[string]string{"x": "y"}, []*Secret{secret}, signingTime, CheckNoKubeconfig},
		"empty":           {map[string]string{"kubeconfig": ""}, []*Secret{secret}, signingTime, CheckNoKubeconfig},
		"too large":       {map[string]string{"kubeconfig": strings.Repeat("x", MaxKubeconfigSize+1)}, []*Secret{secret}, signingTime, CheckKubeconfig},
		"no clock":        {good, []*Secret{secret}, time.Time{}, CheckClock},
		"nil secret":      {good, []*Secret{secret, nil}, signingTime, CheckToken},
		"no token":        {good, []*Secret{{Usages: Usages{Signing: true}}}, signingTime, CheckToken},
		"two for one ID":  {good, []*Secret{secret, signingSecret(t, "abcdef.0123456789abcdee", time.Time{})}, signingTime, CheckDuplicateToken},
		"the other order": {good, []*Secret{signingSecret(t, "abcdef.0123456789abcdee", time.Time{}), secret}, signingTime, CheckDuplicateToken},
	} {
		got, changed, err := Sign(test.data, test.secrets, test.now)
		if !errors.Is(err, test.want) || got != nil || changed {
			t.Errorf("%s: %v, %v, %v, want %v", name, got, changed, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: the error has a secret", name)
		}
	}
}

// Many tokens and documents, against the plain reading of the design document.
func TestSignAgreesWithTheDocument(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var kubeconfig strings.Builder
		for range 1 + random.IntN(200) {
			kubeconfig.WriteRune(rune(1 + random.IntN(0x2000)))
		}
		token := Generate()
		id, secret, _ := strings.Cut(token.Reveal(), ".")
		signed, _, err := Sign(map[string]string{KubeconfigKey: kubeconfig.String()}, []*Secret{{Token: token, Usages: Usages{Signing: true}}}, signingTime)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := signed[SignatureKeyPrefix+id], slowSignature(kubeconfig.String(), id, secret); got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
	}
}

func TestVerify(t *testing.T) {
	ca := newTestCA(t, "one")
	want := info("https://a:6443", ca)
	data, err := NewClusterInfoData(want)
	if err != nil {
		t.Fatal(err)
	}
	token := mustToken(t, "abcdef.0123456789abcdef")
	if data, _, err = Sign(data, []*Secret{{Token: token, Usages: Usages{Signing: true}}}, signingTime); err != nil {
		t.Fatal(err)
	}
	if got, err := Verify(data, token); err != nil || !got.Equal(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	key := SignatureKeyPrefix + "abcdef"
	change := func(key string, value func(string) string) map[string]string {
		changed := maps.Clone(data)
		changed[key] = value(changed[key])
		return changed
	}
	other := signingSecret(t, "abcdef.0123456789abcdef", time.Time{})
	noDocument, _, err := Sign(map[string]string{KubeconfigKey: "x"}, []*Secret{other}, signingTime)
	if err != nil {
		t.Fatal(err)
	}
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

func manySecrets(n int) []*Secret {
	secrets := make([]*Secret, 0, n)
	for i := range n {
		id := "a" + strings.Repeat("0", 5-len(strconv.Itoa(i))) + strconv.Itoa(i)
		token, err := New(id, "0123456789abcdef")
		if err != nil {
			panic(err)
		}
		secrets = append(secrets, &Secret{Token: token, Usages: Usages{Signing: true}})
	}
	return secrets
}

// The payload is encoded once, not once a token: a thousand signatures need memory for
// the signatures alone.
func TestSignEncodesOnce(t *testing.T) {
	secrets := manySecrets(1000)
	bytes := func(kubeconfig string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, _, err := Sign(map[string]string{KubeconfigKey: kubeconfig}, secrets, signingTime); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := bytes("x"), bytes(strings.Repeat("x", 10<<10))
	if large > small+200<<10 {
		t.Errorf("%d bytes for 1 byte to sign, %d for 10 KiB", small, large)
	}
}

func BenchmarkSign(b *testing.B) {
	data := map[string]string{KubeconfigKey: strings.Repeat("x", 2<<10)}
	for _, n := range []int{1, 1000} {
		secrets := manySecrets(n)
		b.Run(strconv.Itoa(n)+"-tokens", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Sign(data, secrets, signingTime); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(strconv.Itoa(n)+"-tokens-bare", func(b *testing.B) {
			encoded := make([]byte, base64.RawURLEncoding.EncodedLen(2<<10))
			for b.Loop() {
				base64.RawURLEncoding.Encode(encoded, []byte(data[KubeconfigKey]))
				for range n {
					mac := hmac.New(sha256.New, []byte("0123456789abcdef"))
					mac.Write(encoded)
					mac.Sum(nil)
				}
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	token := mustToken(f, "abcdef.0123456789abcdef")
	ca := newTestCA(f, "one")
	data, err := NewClusterInfoData(info("https://a", ca))
	if err != nil {
		f.Fatal(err)
	}
	data, _, err = Sign(data, []*Secret{{Token: token, Usages: Usages{Signing: true}}}, signingTime)
	if err != nil {
		f.Fatal(err)
	}
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
