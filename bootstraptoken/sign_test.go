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

	"github.com/nodeattest/nodeattest/secret"

	"github.com/nodeattest/nodeattest/refusal"
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

// encoded are the objects of these Secrets.
func encoded(t testing.TB, secrets ...*Secret) (objects []*Object) {
	t.Helper()
	for _, s := range secrets {
		o, err := s.Object()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return objects
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
		"as large as may be":      {map[string]string{"kubeconfig": strings.Repeat("x", maxKubeconfigSize)}, nil, map[string]string{"kubeconfig": strings.Repeat("x", maxKubeconfigSize)}, false},
		"none":                    {map[string]string{"kubeconfig": kubeconfig}, nil, map[string]string{"kubeconfig": kubeconfig}, false},
		"expires now":             {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(func(s *Secret) { s.Expiration = signingTime }), map[string]string{"kubeconfig": kubeconfig}, true},
		"expires in a moment":     {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(func(s *Secret) { s.Expiration = signingTime.Add(time.Second) }), map[string]string{"kubeconfig": kubeconfig, key: good}, false},
		"not for signing":         {map[string]string{"kubeconfig": kubeconfig, key: good}, secret(func(s *Secret) { s.Usages = Usages{Authentication: true} }), map[string]string{"kubeconfig": kubeconfig}, true},
		"the same twice":          {map[string]string{"kubeconfig": kubeconfig}, append(secret(nil), secret(nil)...), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
		"a second for nothing":    {map[string]string{"kubeconfig": kubeconfig}, append(secret(nil), &Secret{Token: mustToken(t, "abcdef.aaaaaaaaaaaaaaaa")}), map[string]string{"kubeconfig": kubeconfig, key: good}, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(test.data)
			objects := encoded(t, test.secrets...)
			signing, err := Sign(test.data, objects, signingTime)
			if err != nil || signing.Changed != test.changed || !maps.Equal(signing.Data, test.want) || len(signing.Refused) != 0 {
				t.Errorf("%s: %+v, %v, want %v, %v", name, signing, err, test.want, test.changed)
				return
			}
			got := signing.Data
			if !maps.Equal(test.data, before) {
				t.Errorf("%s: the input was changed", name)
			}
			if again, err := Sign(got, objects, signingTime); err != nil || again.Changed || !maps.Equal(again.Data, got) {
				t.Errorf("%s: signed again: %+v, %v", name, again, err)
			}
			got["x"] = "changed"
			if !maps.Equal(test.data, before) {
				t.Errorf("%s: the result is the input", name)
			}
		})
	}
}

func TestSignRefuses(t *testing.T) {
	good := map[string]string{"kubeconfig": "x", SignatureKeyPrefix + "ghijkl": "stale"}
	secret := encoded(t, signingSecret(t, "abcdef.0123456789abcdef", time.Time{}))
	other := encoded(t, signingSecret(t, "abcdef.0123456789abcdee", time.Time{}))
	for name, test := range map[string]struct {
		data    map[string]string
		objects []*Object
		now     time.Time
		want    Check
	}{
		"no data":         {nil, nil, signingTime, checkNoKubeconfig},
		"no kubeconfig":   {map[string]string{"x": "y"}, secret, signingTime, checkNoKubeconfig},
		"empty":           {map[string]string{"kubeconfig": ""}, secret, signingTime, checkNoKubeconfig},
		"one too large":   {map[string]string{"kubeconfig": strings.Repeat("x", maxKubeconfigSize+1)}, secret, signingTime, checkKubeconfig},
		"no clock":        {good, secret, time.Time{}, refusal.CheckConfig},
		"two for one ID":  {good, append(other, secret...), signingTime, checkDuplicateToken},
		"the other order": {good, append(secret, other...), signingTime, checkDuplicateToken},
	} {
		t.Run(name, func(t *testing.T) {
			signing, err := Sign(test.data, test.objects, test.now)
			if !errors.Is(err, test.want) || signing != nil {
				t.Errorf("%s: %+v, %v, want %v", name, signing, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "0123456789") {
				t.Errorf("%s: the error has a secret", name)
			}
		})
	}
}

func manyObjects(t testing.TB, n int) []*Object {
	secrets := make([]*Secret, 0, n)
	for i := range n {
		id := "a" + strings.Repeat("0", 5-len(strconv.Itoa(i))) + strconv.Itoa(i)
		token, err := New(id, "0123456789abcdef")
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, &Secret{Token: token, Usages: Usages{Signing: true}})
	}
	return encoded(t, secrets...)
}

// The payload is encoded once, not once a token: a thousand signatures need memory for
// the signatures alone.
func TestSignEncodesOnce(t *testing.T) {
	objects := manyObjects(t, 1000)
	bytes := func(kubeconfig string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Sign(map[string]string{KubeconfigKey: kubeconfig}, objects, signingTime); err != nil {
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
		objects := manyObjects(b, n)
		b.Run(strconv.Itoa(n)+"-tokens", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Sign(data, objects, signingTime); err != nil {
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

// kubernetesData is what Kubernetes' bootstrap signer writes (signConfigMap), with the rules
// of kubernetesSigns.
func kubernetesData(data map[string]string, objects []*Object, now time.Time) map[string]string {
	signed := map[string]string{}
	for key, value := range data {
		if !strings.HasPrefix(key, SignatureKeyPrefix) {
			signed[key] = value
		}
	}
	for _, o := range objects {
		if key, _, ok := kubernetesSigns(o, now); ok && isTokenSecret(o) {
			id := strings.TrimPrefix(o.Name, secretNamePrefix)
			signed[SignatureKeyPrefix+id] = slowSignature(data[KubeconfigKey], id, string(key))
		}
	}
	return signed
}

// refusedObject is a Secret with which Kubernetes signs and we do not.
func refusedObject(t *testing.T) *Object {
	o := encoded(t, &Secret{Token: mustToken(t, "ghijkl.fedcba9876543210"), Usages: Usages{Signing: true}, Expiration: signingTime.Add(time.Hour), Groups: []string{nodeGroup}})[0]
	o.Data.Reveal()[keyGroups] = []byte(nodeGroup + ",")
	return o
}

// What Kubernetes signed with a Secret that is refused here stays, and is never made here.
func TestSignLeavesWhatKubernetesSigned(t *testing.T) {
	const kubeconfig, key = "x", SignatureKeyPrefix + "ghijkl"
	good, long := slowSignature(kubeconfig, "ghijkl", "fedcba9876543210"), strings.Repeat("S", 32)
	for name, test := range map[string]struct {
		signature string
		change    func(*Object)
		stays     bool
	}{
		"a comma after the groups": {good, func(*Object) {}, true},
		"being deleted":            {good, func(o *Object) { o.Deleted = &signingTime }, true},
		"an unknown key":           {good, setData("auth-groups", "x"), true},
		"another form of secret":   {slowSignature(kubeconfig, "ghijkl", "S"), setData(keySecret, "S"), true},
		"a short secret, unread":   {"whatever it is", setData(keySecret, "S"), true},
		"a secret in capitals":     {slowSignature("y", "ghijkl", "FEDCBA9876543210"), setData(keySecret, "FEDCBA9876543210"), true},
		"a long one":               {slowSignature(kubeconfig, "ghijkl", long), setData(keySecret, long), true},
		"another long one":         {slowSignature("y", "ghijkl", long), setData(keySecret, long), false},
		"never ends":               {good, setData(keyExpiration, ""), true},
		"of another secret":        {slowSignature(kubeconfig, "ghijkl", "fedcba9876543211"), func(*Object) {}, false},
		"of another kubeconfig":    {slowSignature("y", "ghijkl", "fedcba9876543210"), func(*Object) {}, false},
		"of another ID":            {slowSignature(kubeconfig, "ghijkm", "fedcba9876543210"), func(*Object) {}, false},
		"no signature":             {"", func(*Object) {}, false},
		"not to sign":              {good, setData(keySigning, "false"), false},
		"ended":                    {good, setData(keyExpiration, signingTime.Format(time.RFC3339)), false},
		"an end that is no time":   {good, setData(keyExpiration, "tomorrow"), false},
		"an empty secret":          {good, setData(keySecret, ""), false},
		"another ID":               {good, setData(keyID, "ghijkm"), false},
		"of another type":          {good, func(o *Object) { o.Type = "Opaque" }, false},
		"in another namespace":     {good, func(o *Object) { o.Namespace = "default" }, false},
		"of another name":          {good, func(o *Object) { o.Name += "0" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := refusedObject(t)
			test.change(o)
			data := map[string]string{KubeconfigKey: kubeconfig, key: test.signature}
			signing, err := Sign(data, []*Object{nil, o}, signingTime)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := signing.Data[key]; ok != test.stays || signing.Changed == test.stays || ok && got != test.signature {
				t.Errorf("%+v, want it to stay: %v", signing, test.stays)
			}
			if ours := isTokenSecret(o); ours != (len(signing.Refused) == 1) || ours && signing.Refused[0].Name != o.Name {
				t.Errorf("refused %v", signing.Refused)
			}
			// None is added for it.
			delete(data, key)
			if signing, err = Sign(data, []*Object{o}, signingTime); err != nil || signing.Changed {
				t.Errorf("%+v, %v", signing, err)
			}
		})
	}
}

func TestSignNext(t *testing.T) {
	secret := func(id string, after time.Duration) *Secret {
		s := signingSecret(t, id+".0123456789abcdef", signingTime.Add(after))
		if after == 0 {
			s.Expiration = time.Time{}
		}
		return s
	}
	refused := refusedObject(t) // which ends after an hour
	signature := slowSignature("x", "ghijkl", "fedcba9876543210")
	for name, test := range map[string]struct {
		objects   []*Object
		signature string
		want      time.Duration
	}{
		"none":                   {nil, "", 0},
		"endless":                {encoded(t, secret("aaaaaa", 0)), "", 0},
		"one":                    {encoded(t, secret("aaaaaa", time.Minute)), "", time.Minute},
		"the first of them":      {encoded(t, secret("aaaaaa", time.Hour), secret("bbbbbb", time.Second), secret("cccccc", 0), secret("dddddd", time.Minute)), "", time.Second},
		"in a year":              {encoded(t, secret("aaaaaa", 8760*time.Hour)), "", 8760 * time.Hour},
		"ended":                  {encoded(t, secret("aaaaaa", -time.Hour)), "", 0},
		"one that is left alone": {append(encoded(t, secret("aaaaaa", 2*time.Hour)), refused), signature, time.Hour},
		"one that is not signed": {append(encoded(t, secret("aaaaaa", 2*time.Hour)), refused), "", 2 * time.Hour},
		"not for signing":        {encoded(t, &Secret{Token: mustToken(t, testToken), Expiration: signingTime.Add(1)}), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := signingTime.Add(test.want)
			if test.want == 0 {
				want = time.Time{}
			}
			signing, err := Sign(map[string]string{KubeconfigKey: "x", SignatureKeyPrefix + "ghijkl": test.signature}, test.objects, signingTime)
			if err != nil || !signing.Next.Equal(want) {
				t.Errorf("%+v, %v, want %v", signing, err, want)
			}
		})
	}
}

// Sign and Kubernetes' signer over the same Secrets, whatever is wrong with them, come to
// rest: after one write each, neither writes again, and Kubernetes' signatures are there.
func TestTwoSignersComeToRest(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	rests := 0
	for range 3000 {
		var objects []*Object
		for i := range 1 + random.IntN(4) {
			o := goodObject(t)
			id := "abcde" + strconv.Itoa(i)
			o.Name = secretNamePrefix + id
			o.Data.Reveal()[keyID] = []byte(id)
			for range random.IntN(3) {
				refusals[random.IntN(len(refusals))].change(o)
				if o.Data.IsZero() {
					o.Data = secret.New(map[string][]byte{})
				}
			}
			objects = append(objects, o)
		}
		now := testNow.Add(time.Duration(random.IntN(7200)) * time.Second)
		data := map[string]string{KubeconfigKey: "x", "other": "y", SignatureKeyPrefix + "abcde0": "stale", SignatureKeyPrefix + "zzzzzz": "stale"}
		oursFirst := random.IntN(2) == 0
		writes := 0
		for turn := range 6 {
			if oursFirst == (turn%2 == 0) {
				signing, err := Sign(data, objects, now)
				if err != nil {
					t.Fatal(err)
				}
				if signing.Changed {
					writes, data = writes+1, signing.Data
				}
				continue
			}
			if theirs := kubernetesData(data, objects, now); !maps.Equal(theirs, data) {
				writes, data = writes+1, theirs
			}
		}
		if writes > 2 || !maps.Equal(data, kubernetesData(data, objects, now)) {
			t.Fatalf("%d writes, and %v", writes, data)
		}
		if writes > 0 {
			rests++
		}
	}
	if rests < 1000 {
		t.Errorf("%d had anything to write", rests)
	}
}
