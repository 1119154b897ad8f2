package bootstraptoken

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/secret"
)

const (
	manifestYAML = `apiVersion: v1
data:
  auth-extra-groups: c3lzdGVtOmJvb3RzdHJhcHBlcnM6a3ViZWFkbTpkZWZhdWx0LW5vZGUtdG9rZW4sc3lzdGVtOmJvb3RzdHJhcHBlcnM6b3RoZXI=
  description: dGhlIGZpcnN0IG5vZGU=
  expiration: MjAyNi0xMS0yMVQxMzowMDowMFo=
  token-id: YWJjZGVm
  token-secret: MDEyMzQ1Njc4OWFiY2RlZg==
  usage-bootstrap-authentication: dHJ1ZQ==
  usage-bootstrap-signing: dHJ1ZQ==
kind: Secret
metadata:
  name: bootstrap-token-abcdef
  namespace: kube-system
type: bootstrap.kubernetes.io/token
`
	manifestJSON = `{
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "bootstrap-token-abcdef",
        "namespace": "kube-system"
    },
    "type": "bootstrap.kubernetes.io/token",
    "data": {
        "auth-extra-groups": "c3lzdGVtOmJvb3RzdHJhcHBlcnM6a3ViZWFkbTpkZWZhdWx0LW5vZGUtdG9rZW4sc3lzdGVtOmJvb3RzdHJhcHBlcnM6b3RoZXI=",
        "description": "dGhlIGZpcnN0IG5vZGU=",
        "expiration": "MjAyNi0xMS0yMVQxMzowMDowMFo=",
        "token-id": "YWJjZGVm",
        "token-secret": "MDEyMzQ1Njc4OWFiY2RlZg==",
        "usage-bootstrap-authentication": "dHJ1ZQ==",
        "usage-bootstrap-signing": "dHJ1ZQ=="
    }
}
`
)

func TestReveal(t *testing.T) {
	o := goodObject(t)
	text, err := o.RevealYAML()
	if err != nil || string(text) != manifestYAML {
		t.Errorf("%s, %v", text, err)
	}
}

func TestManifestRoundTrip(t *testing.T) {
	stored := goodObject(t)
	deleted := testNow
	stored.UID, stored.ResourceVersion, stored.Deleted = "0a1b", "123", &deleted
	stored.Labels = map[string]string{"example.com/rack": "7", "yes": "", "a": "2026-11-21"}
	stored.Annotations = secret.New(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{\"a\": \"\n\"}", "": "null"})
	odd := &Object{Name: "null", Namespace: "1e3", Type: "- a: *b", UID: "2026-11-21", ResourceVersion: "~", Data: secret.New(map[string][]byte{
		"true": nil, "": {0, 255}, "a: b": []byte("x"), "12": {}, "\"\\": []byte("\n"), "ä\U0001f600": []byte("1"), "<<": []byte("merge"), "=": []byte("x"), "<b>": []byte("x"),
	})}
	for _, o := range []*Object{goodObject(t), stored, {Data: secret.New(map[string][]byte{})}, odd} {
		text, err := o.RevealYAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseManifest(text)
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		for key, value := range back.Data.Reveal() {
			if len(value) == 0 && len(o.Data.Reveal()[key]) == 0 {
				back.Data.Reveal()[key] = o.Data.Reveal()[key]
			}
		}
		if !reflect.DeepEqual(back, o) {
			t.Errorf("%#v, want %#v\n%s", back, o, text)
		}
	}
}

func TestRevealRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Object)
		want   Check
	}{
		"a name not in UTF-8":  {func(o *Object) { o.Name = "\xff" }, checkManifest},
		"a key not in UTF-8":   {setData("\xff", "a"), checkManifest},
		"too much data":        {setData("a", strings.Repeat("a", maxSecretSize)), checkSize},
		"a label not in UTF-8": {func(o *Object) { o.Labels = map[string]string{"a": "\xff"} }, checkManifest},
		"annotations too long": {func(o *Object) {
			o.Annotations = secret.New(map[string]string{"a": strings.Repeat("a", maxAnnotations)})
		}, checkSize},
	} {
		t.Run(name, func(t *testing.T) {
			o := goodObject(t)
			test.change(o)
			if _, err := o.RevealYAML(); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
	longest := goodObject(t)
	longest.Labels, longest.Annotations = nil, secret.New(map[string]string{"a": strings.Repeat("a", maxAnnotations-1)})
	if _, err := longest.RevealYAML(); err != nil {
		t.Errorf("the longest annotations: %v", err)
	}
}

// handWritten is a manifest as in the documentation of Kubernetes: comments, stringData, an
// expiration without quotes.
const handWritten = `# A token for one node.
---
apiVersion: v1
kind: Secret
metadata:
  name: bootstrap-token-abcdef
  namespace: kube-system
  labels: {team: nodes}
type: bootstrap.kubernetes.io/token
stringData:
  description: "the first node"
  token-id: abcdef
  token-secret: 0123456789abcdef
  expiration: 2026-11-21T13:00:00Z
  usage-bootstrap-authentication: "true"
  usage-bootstrap-signing: "true"
  auth-extra-groups: system:bootstrappers:kubeadm:default-node-token,system:bootstrappers:other
`

func TestParseManifest(t *testing.T) {
	for name, manifest := range map[string]string{
		"YAML": manifestYAML, "JSON": manifestJSON, "by hand": handWritten, "without comment": strings.TrimPrefix(handWritten, "# A token for one node.\n"),
		"JSON in one line": strings.ReplaceAll(strings.ReplaceAll(manifestJSON, "\n", ""), "    ", ""),
		"both kinds of data": strings.Replace(manifestYAML, "  token-id: YWJjZGVm\n", "", 1) +
			"stringData:\n  token-id: abcdef\n",
		"no stringData":   manifestYAML + "stringData:\n",
		"CRLF":            strings.ReplaceAll(manifestYAML, "\n", "\r\n"),
		"an end":          manifestYAML + "...\n",
		"kubectl's extra": strings.Replace(manifestYAML, "metadata:\n", "metadata:\n  creationTimestamp: null\n  managedFields:\n  - manager: kubectl\n    fieldsV1: {\"f:data\": {}}\n", 1),
	} {
		t.Run(name, func(t *testing.T) {
			o, err := ParseManifest([]byte(manifest))
			want := goodObject(t)
			if name == "by hand" || name == "without comment" {
				want.Labels = map[string]string{"team": "nodes"}
			}
			if err != nil || !reflect.DeepEqual(o, want) {
				t.Errorf("%s: %v, %v", name, o, err)
			}
		})
	}
	stored := strings.Replace(manifestYAML, "metadata:\n", "metadata:\n  uid: 0a1b\n  resourceVersion: \"7\"\n  deletionTimestamp: \"2026-11-21T12:00:00Z\"\n", 1)
	o, err := ParseManifest([]byte(stored))
	if err != nil || o.UID != "0a1b" || o.ResourceVersion != "7" || o.Deleted == nil || !o.Deleted.Equal(testNow) {
		t.Errorf("%#v, %v", o, err)
	}
	if _, err := ParseSecretUnchecked(o); !errors.Is(err, checkDeleted) {
		t.Error(err)
	}
}

// badManifests are the smallest changes of a good one: what is replaced, and by what.
var badManifests = map[string][2]string{
	"another version":           {"apiVersion: v1", "apiVersion: v2"},
	"no version":                {"apiVersion: v1\n", ""},
	"another kind":              {"kind: Secret", "kind: ConfigMap"},
	"no kind":                   {"kind: Secret\n", ""},
	"a list":                    {"kind: Secret", "kind: List"},
	"an unknown member":         {"kind: Secret", "kind: Secret\nspec: {}"},
	"immutable":                 {"kind: Secret", "kind: Secret\nimmutable: true"},
	"kind in capitals":          {"kind: Secret", "kind: Secret\nKind: Secret"},
	"an unknown name":           {"  name: ", "  nome: x\n  name: "},
	"kind twice":                {"kind: Secret", "kind: Secret\nkind: Secret"},
	"a key twice":               {"token-id: abcdef", "token-id: abcdef\n  token-id: abcdef"},
	"a key in both":             {"stringData:", "data: {token-id: YWJjZGVm}\nstringData:"},
	"data that is text":         {"stringData:", "data: text\nstringData:"},
	"data that is a list":       {"stringData:", "data: [a]\nstringData:"},
	"data without padding":      {"stringData:", "data: {a: YQ}\nstringData:"},
	"data with spare bits":      {"stringData:", "data: {a: YR==}\nstringData:"},
	"data with a line break":    {"stringData:", "data: {a: \"YWJj\\nZGVm\"}\nstringData:"},
	"data in URL base64":        {"stringData:", "data: {a: __-_}\nstringData:"},
	"data not in base64":        {"stringData:", "data: {a: \"" + testToken + "\"}\nstringData:"},
	"data without a value":      {"stringData:", "data: {a: }\nstringData:"},
	"an ID of digits alone":     {"token-id: abcdef", "token-id: 123456"},
	"a secret that is a number": {"token-secret: 0123456789abcdef", "token-secret: 0123456789012345"},
	"an exponent as ID":         {"token-id: abcdef", "token-id: 1234e1"},
	"true without quotes":       {`usage-bootstrap-signing: "true"`, "usage-bootstrap-signing: true"},
	"null":                      {"token-id: abcdef", "token-id: null"},
	"an anchor":                 {"token-id: abcdef", "token-id: &a abcdef"},
	"an alias":                  {"token-id: abcdef", "token-id: *0123456789abcdef"},
	"a merge":                   {"token-id: abcdef", "<<: {token-id: abcdef}"},
	"a tag":                     {"token-id: abcdef", "token-id: !!str abcdef"},
	"binary":                    {"token-id: abcdef", "token-id: !!binary YWJjZGVm"},
	"a tag of one's own":        {"token-id: abcdef", "token-id: !0123456789abcdef abcdef"},
	"a second document":         {"# A token", "a: b\n--- # A token"},
	"a document after":          {"default-node-token,", "default-node-token\n---\nx: "},
	"a key that is a number":    {"token-id: abcdef", "12: abcdef"},
	"a key that is a list":      {"token-id: abcdef", "[a]: abcdef"},
	"a nested value":            {"token-id: abcdef", "token-id: {a: b}"},
	"a label that is a number":  {"{team: nodes}", "{team: 7}"},
	"a label without a value":   {"{team: nodes}", "{team: }"},
	"labels as a list":          {"{team: nodes}", "[team]"},
	"annotations as text":       {"labels: {team: nodes}", "annotations: team"},
	"metadata as text":          {"metadata:", "metadata: text\nlabels:"},
	"a name that is a list":     {"name: bootstrap-token-abcdef", "name: [bootstrap-token-abcdef]"},
	"a deletion that is none":   {"  name:", "  deletionTimestamp: now\n  name:"},
	"a deletion as number":      {"  name:", "  deletionTimestamp: 7\n  name:"},
	"a tab":                     {"  token-id", "\ttoken-id"},
	"not UTF-8":                 {"the first", "the \xff first"},
	"a NUL":                     {"the first", "the \x00 first"},
	"a broken quote":            {`"the first node"`, `"the first node`},
	"an anchor never closed":    {"labels: {team: nodes}", "labels: {team: nodes"},
	"a secret as member":        {"kind: Secret", "kind: Secret\n" + testSecret + ": a"},
	"a directive":               {"# A token for one node.", "%YAML 3.0"},
}

func TestParseManifestRefuses(t *testing.T) {
	for name, test := range badManifests {
		manifest := strings.Replace(handWritten, test[0], test[1], 1)
		if manifest == handWritten {
			t.Fatalf("%s changes nothing", name)
		}
		o, err := ParseManifest([]byte(manifest))
		if !errors.Is(err, checkManifest) || o != nil || leaks(err.Error()) {
			t.Errorf("%s: %v, %v, want %v", name, o, err, checkManifest)
		}
	}
	for _, manifest := range []string{"", "\n", "---\n", "null", "text", "[]", "{}", "{", "[{}]", "\ufeff" + manifestYAML, manifestJSON + manifestJSON, "{\"a\": \"\\ud83d\\ude00\"}", "&a [*a]"} {
		if o, err := ParseManifest([]byte(manifest)); !errors.Is(err, checkManifest) || o != nil {
			t.Errorf("%q: %v, %v", manifest, o, err)
		}
	}
}

// TestParseManifestOfAnySize: what is too large is refused unread, and what is not costs
// memory in proportion to its size.
func TestParseManifestOfAnySize(t *testing.T) {
	if _, err := ParseManifest(make([]byte, maxManifestSize+1)); !errors.Is(err, checkSize) {
		t.Error(err)
	}
	for name, manifest := range map[string][]byte{
		"brackets":  bytes.Repeat([]byte("["), maxManifestSize),
		"braces":    bytes.Repeat([]byte("{a: "), maxManifestSize/4),
		"dashes":    bytes.Repeat([]byte("- "), maxManifestSize/2),
		"spaces":    bytes.Repeat([]byte(" "), maxManifestSize),
		"text":      bytes.Repeat([]byte("a"), maxManifestSize),
		"documents": bytes.Repeat([]byte("---\n"), maxManifestSize/4),
		"comments":  bytes.Repeat([]byte("#\n"), maxManifestSize/2),
		"anchors":   bytes.Repeat([]byte("- &a\n"), maxManifestSize/5),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseManifest(manifest); !errors.Is(err, checkManifest) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(manifestYAML))
	f.Add([]byte(manifestJSON))
	f.Add([]byte(handWritten))
	for _, test := range badManifests {
		f.Add([]byte(strings.Replace(handWritten, test[0], test[1], 1)))
	}
	f.Fuzz(func(t *testing.T, manifest []byte) {
		o, err := ParseManifest(manifest)
		if err != nil {
			if o != nil || !errors.Is(err, checkManifest) && !errors.Is(err, checkSize) {
				t.Fatalf("%v, %v", o, err)
			}
			return
		}
		if checkDataSize(o.Data.Reveal()) != nil {
			return
		}
		text, err := o.RevealYAML()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseManifest(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again, err := back.RevealYAML(); err != nil {
			t.Fatal(err)
		} else if !bytes.Equal(text, again) {
			t.Fatalf("%s is read and written as %s", text, again)
		}
	})
}
