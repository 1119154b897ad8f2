package bootstraptoken

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"unicode"
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
	data, err := want.Data()
	if err != nil {
		t.Fatal(err)
	}
	token := mustToken(t, "abcdef.0123456789abcdef")
	data = signedData(t, data, token)
	if got, err := signedKubeconfig(data, token); err != nil || got != data[KubeconfigKey] {
		t.Fatalf("%s, %v", got, err)
	}
	if got, err := VerifyClusterInfo(data, token); err != nil || !got.Equal(want) {
		t.Fatalf("%+v, %v", got, err)
	}
	if got, err := VerifyClusterInfo(signedData(t, map[string]string{KubeconfigKey: "x"}, token), token); got != nil || !errors.Is(err, checkKubeconfig) {
		t.Fatalf("a signed text that is no kubeconfig: %+v, %v", got, err)
	}
	key := SignatureKeyPrefix + "abcdef"
	change := func(key string, value func(string) string) map[string]string {
		changed := maps.Clone(data)
		changed[key] = value(changed[key])
		return changed
	}
	for name, test := range map[string]struct {
		data  map[string]string
		token Token
		want  Check
	}{
		"no token":               {data, Token{}, checkToken},
		"nothing":                {nil, token, checkNoKubeconfig},
		"another secret":         {data, mustToken(t, "abcdef.0123456789abcdee"), CheckSignature},
		"another ID":             {data, mustToken(t, "abcdeg.0123456789abcdef"), checkNoSignature},
		"a line feed more":       {change(KubeconfigKey, func(s string) string { return s + "\n" }), token, CheckSignature},
		"a line feed less":       {change(KubeconfigKey, func(s string) string { return s[:len(s)-1] }), token, CheckSignature},
		"another server":         {change(KubeconfigKey, func(s string) string { return strings.Replace(s, "a:6443", "b:6443", 1) }), token, CheckSignature},
		"no signature":           {change(key, func(string) string { return "" }), token, checkNoSignature},
		"padded":                 {change(key, func(s string) string { return s + "=" }), token, CheckSignature},
		"a line feed after":      {change(key, func(s string) string { return s + "\n" }), token, CheckSignature},
		"not detached":           {change(key, func(s string) string { return strings.Replace(s, "..", ".e30.", 1) }), token, CheckSignature},
		"alg none":               {change(key, func(string) string { return "eyJhbGciOiJub25lIn0.." }), token, CheckSignature},
		"another token's header": {change(key, func(string) string { return slowSignature(data[KubeconfigKey], "abcdeg", "0123456789abcdef") }), token, CheckSignature},
		"too large":              {change(KubeconfigKey, func(string) string { return strings.Repeat("x", maxKubeconfigSize+1) }), token, checkKubeconfig},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := signedKubeconfig(test.data, test.token)
			if !errors.Is(err, test.want) || got != "" {
				t.Errorf("%s: %s, %v, want %v", name, got, err, test.want)
			}
			if info, err := VerifyClusterInfo(test.data, test.token); !errors.Is(err, test.want) || info != nil {
				t.Errorf("%s: %+v, %v, want %v", name, info, err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "0123456789") {
				t.Errorf("%s: the error has the secret: %v", name, err)
			}
		})
	}
}

func FuzzVerify(f *testing.F) {
	token := mustToken(f, "abcdef.0123456789abcdef")
	ca := newTestCA(f, "one")
	data, err := info("https://a", ca).Data()
	if err != nil {
		f.Fatal(err)
	}
	data = signedData(f, data, token)
	signature := data[SignatureKeyPrefix+"abcdef"]
	f.Add(data[KubeconfigKey], signature)
	f.Add(data[KubeconfigKey], signature+"=")
	f.Add("x", slowSignature("x", "abcdef", "0123456789abcdef"))
	f.Fuzz(func(t *testing.T, kubeconfig, signature string) {
		_, err := signedKubeconfig(map[string]string{KubeconfigKey: kubeconfig, SignatureKeyPrefix + "abcdef": signature}, token)
		if err == nil && signature != slowSignature(kubeconfig, "abcdef", "0123456789abcdef") {
			t.Fatalf("%q verifies over %q", signature, kubeconfig)
		}
	})
}

const goodConfigMap = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cluster-info","namespace":"kube-public","uid":"u","resourceVersion":"1",` +
	`"managedFields":[{"manager":"kubeadm","fieldsV1":{"f:data":{".":{},"f:kubeconfig":{}}}}]},"data":{"kubeconfig":"a\nb","jws-kubeconfig-abcdef":"x..y"},"immutable":false,"binaryData":{"a":"AA=="}}` + "\n"

func TestParseConfigMap(t *testing.T) {
	want := map[string]string{"kubeconfig": "a\nb", "jws-kubeconfig-abcdef": "x..y"}
	for name, object := range map[string]string{
		"as served":     goodConfigMap,
		"large":         goodConfigMap + strings.Repeat(" ", maxConfigMapSize-len(goodConfigMap)),
		"spaces":        " " + goodConfigMap + "\t\r\n",
		"other members": strings.Replace(goodConfigMap, `"data"`, `"newThing":[{"a":[1,2.5e3,null,true]}],"data"`, 1),
		"escapes":       strings.Replace(goodConfigMap, `"kubeconfig":"a`, `"\u006bubeconfig":"\u0061`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := parseConfigMap([]byte(object)); err != nil || !maps.Equal(got, want) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		})
	}
	for name, object := range map[string]string{
		"no data": strings.Replace(goodConfigMap, `"data"`, `"dataa"`, 1), "data null": `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cluster-info","namespace":"kube-public"},"data":null}`,
	} {
		if got, err := parseConfigMap([]byte(object)); err != nil || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// YAML or an empty text is described as not JSON, and broken JSON by its position.
func TestParseConfigMapOfYAML(t *testing.T) {
	for object, want := range map[string]bool{
		"apiVersion: v1\nkind: ConfigMap\n": true, "- a": true, "": true, " \n": true, "[]": true, "null": true, "{": false, " \t\r\n{]": false,
	} {
		t.Run(object, func(t *testing.T) {
			_, err := parseConfigMap([]byte(object))
			var own *Error
			if !errors.Is(err, checkConfigMap) || !errors.As(err, &own) || (own.Got != "") != want {
				t.Errorf("%q: %v, and it is to be said that it is no JSON: %v", object, err, want)
			}
		})
	}
}

func TestParseConfigMapRefuses(t *testing.T) {
	replace := func(old, new string) string { return strings.Replace(goodConfigMap, old, new, 1) }
	for name, object := range map[string]string{
		"nothing":             "",
		"null":                "null",
		"a list":              "[" + goodConfigMap + "]",
		"cut off":             goodConfigMap[:len(goodConfigMap)-3],
		"two":                 goodConfigMap + goodConfigMap,
		"YAML":                "kind: ConfigMap",
		"another kind":        replace("ConfigMap", "Secret"),
		"a kind of controls":  replace("ConfigMap", `\n\u001b[2J\u202e`),
		"a Status":            `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure"}`,
		"no kind":             replace(`"kind":"ConfigMap",`, ""),
		"another version":     replace(`"v1"`, `"v2"`),
		"another name":        replace("cluster-info", "cluster-infos"),
		"another namespace":   replace("kube-public", "default"),
		"no metadata":         replace(`"metadata"`, `"meta"`),
		"metadata null":       `{"kind":"ConfigMap","apiVersion":"v1","metadata":null,"data":{}}`,
		"kind twice":          replace(`{`, `{"kind":"ConfigMap",`),
		"Kind":                replace(`{`, `{"Kind":"Secret",`),
		"data twice":          replace(`"data"`, `"data":{"kubeconfig":"z"},"data"`),
		"kubeconfig twice":    replace(`"kubeconfig":"a`, `"kubeconfig":"z","kubeconfig":"a`),
		"Kubeconfig":          replace(`"kubeconfig":"a`, `"Kubeconfig":"z","kubeconfig":"a`),
		"a number in data":    replace(`"a\nb"`, "1"),
		"null in data":        replace(`"a\nb"`, "null"),
		"data is text":        replace(`"data":{`, `"data":"x","y":{`),
		"bad UTF-8":           replace("x..y", "x\xff"),
		"lone surrogate":      replace("x..y", `\ud800`),
		"control character":   replace("x..y", "x\n"),
		"deep":                replace(`"immutable":false`, `"immutable":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)),
		"too large":           goodConfigMap + strings.Repeat(" ", maxConfigMapSize-len(goodConfigMap)+1),
		"as deep as it gets":  strings.Repeat("[", maxConfigMapSize),
		"only objects":        strings.Repeat(`{"a":`, maxConfigMapSize/5),
		"a text without end":  `"` + strings.Repeat(`\u0061`, maxConfigMapSize/7),
		"too many in an list": `{"a":[` + strings.Repeat("0,", maxConfigMapSize/2-10),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseConfigMap([]byte(object))
			if !errors.Is(err, checkConfigMap) || got != nil {
				t.Errorf("%s: %v, %v, want %v", name, got, err, checkConfigMap)
			}
			if len(err.Error()) > 1000 || strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: an error of %d bytes: %q", name, len(err.Error()), err)
			}
		})
	}
}

// encoding/json reads an accepted object in the same way.
func FuzzParseConfigMap(f *testing.F) {
	for _, s := range []string{goodConfigMap, "{}", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cluster-info","namespace":"kube-public"},"data":{"a":"b"}}`, "null", `{"data":{"a":"1","A":"2"}}`,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cluster-info","namespace":"kube-public"},"dAta":{"a":"b"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		data, err := parseConfigMap(object)
		if err != nil {
			return
		}
		// Names of members are exact: into a struct encoding/json reads them in any case.
		read := func(raw []byte, into any) {
			if err := json.Unmarshal(raw, into); raw != nil && err != nil {
				t.Fatal(err)
			}
		}
		var members, metadata map[string]json.RawMessage
		var kind, name, namespace string
		var want map[string]string
		read(object, &members)
		read(members["kind"], &kind)
		read(members["metadata"], &metadata)
		read(metadata["name"], &name)
		read(metadata["namespace"], &namespace)
		read(members["data"], &want)
		if kind != "ConfigMap" || name != ClusterInfoName || namespace != ClusterInfoNamespace || !maps.Equal(want, data) {
			t.Fatalf("%v, encoding/json has %s %s/%s: %v", data, kind, namespace, name, want)
		}
	})
}
