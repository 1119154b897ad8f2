package bootstraptoken

import (
	"encoding/base64"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/secret"
)

const manifestYAML = `apiVersion: v1
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

func TestReveal(t *testing.T) {
	o := goodObject(t)
	text, err := o.RevealYAML()
	if err != nil || string(text) != manifestYAML {
		t.Errorf("%s, %v", text, err)
	}
}

// Every reader reads the written texts back, also where YAML has another meaning for them.
func TestRevealReadsBack(t *testing.T) {
	stored := goodObject(t)
	stored.UID, stored.ResourceVersion, stored.Deleted = "0a1b", "123", &testNow
	stored.Labels = map[string]string{"example.com/rack": "7", "yes": "", "a": "2026-11-21"}
	stored.Annotations = secret.New(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{\"a\": \"\n\"}", "": "null"})
	odd := &Object{Name: "null", Namespace: "1e3", Type: "- a: *b", UID: "2026-11-21", ResourceVersion: "~", Data: secret.New(map[string][]byte{
		"true": {}, "": {0, 255}, "a: b": []byte("x"), "12": {}, "\"\\": []byte("\n"), "ä\U0001f600": []byte("1"), "<<": []byte("merge"), "=": []byte("x"), "<b>": []byte("x"),
	})}
	for _, o := range []*Object{goodObject(t), stored, {Data: secret.New(map[string][]byte{})}, odd, {}} {
		text, err := o.RevealYAML()
		if err != nil {
			t.Fatal(err)
		}
		node, err := parseYAML(text)
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		var m manifest
		if err := node.Decode(&m); err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		back := &Object{Namespace: m.Metadata.Namespace, Name: m.Metadata.Name, UID: m.Metadata.UID, ResourceVersion: m.Metadata.ResourceVersion,
			Deleted: o.Deleted, Type: m.Type, Labels: m.Metadata.Labels}
		if m.Metadata.Annotations != nil {
			back.Annotations = secret.New(m.Metadata.Annotations)
		}
		if !o.Data.IsZero() {
			back.Data = secret.New(map[string][]byte{})
		}
		for key, value := range m.Data {
			if back.Data.Reveal()[key], err = base64.StdEncoding.DecodeString(value); err != nil {
				t.Error(err)
			}
		}
		if m.APIVersion != "v1" || m.Kind != "Secret" || !reflect.DeepEqual(back, o) {
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
		"an annotation":        {func(o *Object) { o.Annotations = secret.New(map[string]string{"\xff": "a"}) }, checkManifest},
	} {
		t.Run(name, func(t *testing.T) {
			o := goodObject(t)
			test.change(o)
			if _, err := o.RevealYAML(); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", name, err, test.want)
			}
		})
	}
}
