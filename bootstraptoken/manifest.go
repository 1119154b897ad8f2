package bootstraptoken

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// manifest is that of a Secret (core/v1), its members in alphabetical order.
type manifest struct {
	APIVersion string            `yaml:"apiVersion"`
	Data       map[string]string `yaml:"data"`
	Kind       string            `yaml:"kind"`
	Metadata   struct {
		Annotations     map[string]string `yaml:"annotations,omitempty"`
		Labels          map[string]string `yaml:"labels,omitempty"`
		Name            string            `yaml:"name,omitempty"`
		Namespace       string            `yaml:"namespace,omitempty"`
		ResourceVersion string            `yaml:"resourceVersion,omitempty"`
		UID             string            `yaml:"uid,omitempty"`
	} `yaml:"metadata"`
	Type string `yaml:"type,omitempty"`
}

// RevealYAML returns the object as the manifest of a Secret, for kubectl apply or a file:
// base64 under data, members in alphabetical order. Anyone who reads it has the token's
// secret. The deletionTimestamp, which only the API server sets, is left out. The error is
// "manifest" if a text is not UTF-8, or "size" if there is more data than 65,536 bytes.
func (o *Object) RevealYAML() ([]byte, error) {
	o = cmp.Or(o, new(Object))
	if err := checkDataSize(o.Data.Reveal()); err != nil {
		return nil, err
	}
	m := manifest{APIVersion: "v1", Kind: "Secret", Type: o.Type, Data: map[string]string{}}
	for key, value := range o.Data.Reveal() {
		m.Data[key] = base64.StdEncoding.EncodeToString(value)
	}
	m.Metadata.Name, m.Metadata.Namespace = o.Name, o.Namespace
	m.Metadata.UID, m.Metadata.ResourceVersion = o.UID, o.ResourceVersion
	m.Metadata.Labels, m.Metadata.Annotations = o.Labels, o.Annotations.Reveal()
	texts := []string{o.Name, o.Namespace, o.UID, o.ResourceVersion, o.Type}
	for _, own := range []map[string]string{m.Data, m.Metadata.Labels, m.Metadata.Annotations} {
		texts = slices.AppendSeq(slices.AppendSeq(texts, maps.Keys(own)), maps.Values(own))
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return nil, &Error{Check: checkManifest, Got: strconv.Itoa(len(text)) + " bytes that are not", Want: "UTF-8"}
		}
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	err := errors.Join(e.Encode(m), e.Close()) // each may write
	return out.Bytes(), err
}
