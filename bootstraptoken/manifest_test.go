package bootstraptoken

import (
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
	text, err = o.RevealJSON()
	if err != nil || string(text) != manifestJSON {
		t.Errorf("%s, %v", text, err)
	}
}

func TestManifestRoundTrip(t *testing.T) {
	stored := goodObject(t)
	deleted := testNow
	stored.UID, stored.ResourceVersion, stored.Deleted = "0a1b", "123", &deleted
	odd := &Object{Name: "null", Namespace: "1e3", Type: "- a: *b", UID: "2026-11-21", ResourceVersion: "~", Data: secret.New(map[string][]byte{
		"true": nil, "": {0, 255}, "a: b": []byte("x"), "12": {}, "\"\\": []byte("\n"), "ä\U0001f600": []byte("1"), "<<": []byte("merge"), "=": []byte("x"), "<b>": []byte("x"),
	})}
	for _, o := range []*Object{goodObject(t), stored, {Data: secret.New(map[string][]byte{})}, odd} {
		for name, reveal := range map[string]func() ([]byte, error){"YAML": o.RevealYAML, "JSON": o.RevealJSON} {
			text, err := reveal()
			if err != nil {
				t.Fatal(err)
			}
			back, err := ParseManifest(text)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
				continue
			}
			for key, value := range back.Data.Reveal() {
				if len(value) == 0 && len(o.Data.Reveal()[key]) == 0 {
					back.Data.Reveal()[key] = o.Data.Reveal()[key]
				}
			}
			if !reflect.DeepEqual(back, o) {
				t.Errorf("%s: %#v, want %#v\n%s", name, back, o, text)
			}
		}
	}
}

func TestRevealRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Object)
		want   Check
	}{
		"a name not in UTF-8": {func(o *Object) { o.Name = "\xff" }, CheckManifest},
		"a key not in UTF-8":  {setData("\xff", "a"), CheckManifest},
		"too much data":       {setData("a", strings.Repeat("a", MaxSecretSize)), CheckSize},
	} {
		o := goodObject(t)
		test.change(o)
		if _, err := o.RevealYAML(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if _, err := o.RevealJSON(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
