package bootstraptoken

import (
	"bytes"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/secret"
)

// RevealYAML returns the object as the manifest of a Secret, for kubectl apply or a file:
// base64 under data, members in alphabetical order. Anyone who reads it has the token's
// secret. The error is "manifest" if a text is not UTF-8, or "size" if there is more
// data than 65,536 bytes, or more in labels and annotations than the 262,144 that the API
// server keeps.
func (o *Object) RevealYAML() ([]byte, error) {
	o = typednil.OrZero(o)
	metadata := map[string]string{"name": o.Name, "namespace": o.Namespace, "uid": o.UID, "resourceVersion": o.ResourceVersion}
	if o.Deleted != nil {
		metadata["deletionTimestamp"] = o.Deleted.UTC().Format(time.RFC3339)
	}
	maps.DeleteFunc(metadata, func(_, text string) bool { return text == "" })
	data := map[string]string{}
	for key, value := range o.Data.Reveal() {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	texts := append(slices.AppendSeq(slices.Collect(maps.Values(metadata)), maps.Keys(data)), o.Type)
	all, size := map[string]any{}, 0
	for name, text := range metadata {
		all[name] = text
	}
	for name, own := range map[string]map[string]string{"labels": o.Labels, "annotations": o.Annotations.Reveal()} {
		if len(own) > 0 {
			all[name] = own
		}
		for key, value := range own {
			texts = append(texts, key, value)
			size += len(key) + len(value)
		}
	}
	if size > maxAnnotations {
		return nil, &Error{Check: checkSize, Got: strconv.Itoa(size) + " bytes of labels and annotations", Want: "at most " + strconv.Itoa(maxAnnotations)}
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return nil, &Error{Check: checkManifest, Got: strconv.Itoa(len(text)) + " bytes that are not", Want: "UTF-8"}
		}
	}
	if err := checkDataSize(o.Data.Reveal()); err != nil {
		return nil, err
	}
	manifest := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": all, "data": data}
	if o.Type != "" {
		manifest["type"] = o.Type
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(manifest); err != nil {
		return nil, err
	}
	err := e.Close() // which may write
	return out.Bytes(), err
}

// ParseManifest reads the manifest of one Secret of core/v1, in YAML or JSON, as kubectl
// accepts it and as kubectl get prints it. [ParseSecretUnchecked] says whether it is a token's.
//
// It is strict where YAML is not: UTF-8, one document, no anchors, aliases, merge keys or
// tags, no duplicate keys. apiVersion and kind must be present. A member that a Secret does
// not have is refused, and so is immutable, since it must be possible to extend a token.
// Values must be text, so a token-secret of digits only needs quotes, as with kubectl; an
// expiration without quotes is accepted, as with kubectl. data is canonical base64 with
// padding and no line breaks. stringData, which people write, is taken verbatim; a key in both
// is refused, whereas the API server lets stringData win. Of metadata, name, namespace, uid,
// resourceVersion, deletionTimestamp, labels and annotations are read.
//
// JSON is read as the YAML that it is: an escaped surrogate pair (\ud83d\ude00) is refused.
//
// The error is "manifest", or "size" for more than 1,048,576 bytes.
func ParseManifest(manifest []byte) (*Object, error) {
	if len(manifest) > maxManifestSize {
		return nil, &Error{Check: checkSize, Got: strconv.Itoa(len(manifest)) + " bytes", Want: "at most " + strconv.Itoa(maxManifestSize)}
	}
	root, err := parseYAML(manifest, checkManifest)
	if err != nil {
		return nil, err
	}
	var version, kind string
	o, data, annotations := new(Object), map[string][]byte{}, map[string]string(nil)
	metadata := members{
		"name":            text(&o.Name),
		"namespace":       text(&o.Namespace),
		"uid":             text(&o.UID),
		"resourceVersion": text(&o.ResourceVersion),
		"deletionTimestamp": orNull(func(v yamlValue) error {
			t, ok := parseTime(v.node.Value)
			if !ok {
				return v.fail("no time", wantTime)
			}
			o.Deleted = &t
			return nil
		}),
		"labels":      texts(&o.Labels),
		"annotations": texts(&annotations),
	}
	for _, unread := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "finalizers", "generateName",
		"generation", "managedFields", "ownerReferences", "selfLink"} {
		metadata[unread] = func(yamlValue) error { return nil } // nothing here depends on them
	}
	err = members{
		"apiVersion": text(&version),
		"kind":       text(&kind),
		"type":       text(&o.Type),
		"metadata":   orNull(metadata.read),
		"data":       values(data, decodeBase64),
		"stringData": values(data, func(text string) ([]byte, error) { return []byte(text), nil }),
	}.read(root)
	if err != nil {
		return nil, err
	}
	if version != "v1" || kind != "Secret" {
		return nil, &Error{Check: checkManifest, Got: "apiVersion " + describe([]byte(version)) + ", kind " + describe([]byte(kind)), Want: "v1, Secret"}
	}
	o.Data = secret.New(data)
	if annotations != nil {
		o.Annotations = secret.New(annotations)
	}
	return o, nil
}

// texts makes a reader of an object of texts, or null.
func texts(to *map[string]string) func(yamlValue) error {
	return orNull(func(v yamlValue) error {
		return v.members(func(key string, v yamlValue) error {
			var value string
			err := text(&value)(v)
			if *to == nil {
				*to = map[string]string{}
			}
			(*to)[key] = value
			return err
		})
	})
}

// values makes a reader of data or stringData, or null, that adds to what is there.
func values(data map[string][]byte, decode func(string) ([]byte, error)) func(yamlValue) error {
	return orNull(func(v yamlValue) error {
		return v.members(func(key string, v yamlValue) error {
			if _, twice := data[key]; twice {
				return v.fail("a key that is in data and stringData", "in one of them")
			}
			var encoded string
			if err := text(&encoded)(v); err != nil {
				return err
			}
			value, err := decode(encoded)
			if err != nil {
				return v.fail("another text in data", "canonical base64")
			}
			data[key] = value
			return nil
		})
	})
}
