package bootstraptoken

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// MaxManifestSize is the most bytes that [ParseManifest] reads: 1 MiB.
const MaxManifestSize = 1 << 20

// The one kind of object that a manifest holds.
const (
	manifestAPIVersion = "v1"
	manifestKind       = "Secret"
)

// RevealYAML returns the object as the manifest of a Secret, for kubectl apply or a file:
// base64 under data, members in the order of the alphabet. Whoever reads it has the
// token's secret. The error is [CheckManifest] if a text is not UTF-8, or CheckSize if
// there is more data than [MaxSecretSize].
func (o *Object) RevealYAML() ([]byte, error) {
	if err := o.checkText(); err != nil {
		return nil, err
	}
	metadata := map[string]any{"name": o.Name, "namespace": o.Namespace}
	metadata["uid"], metadata["resourceVersion"] = o.UID, o.ResourceVersion
	if o.Deleted != nil {
		metadata["deletionTimestamp"] = o.Deleted.UTC().Format(time.RFC3339)
	}
	for name, value := range metadata {
		if value == "" {
			delete(metadata, name)
		}
	}
	return marshalYAML(map[string]any{
		"apiVersion": manifestAPIVersion, "kind": manifestKind, "type": o.Type, "metadata": metadata, "data": o.base64(),
	})
}

// RevealJSON returns what [Object.RevealYAML] does as indented JSON.
func (o *Object) RevealJSON() ([]byte, error) {
	if err := o.checkText(); err != nil {
		return nil, err
	}
	deleted := ""
	if o.Deleted != nil {
		deleted = o.Deleted.UTC().Format(time.RFC3339)
	}
	type metadata struct {
		Name      string `json:"name,omitempty"`
		Namespace string `json:"namespace,omitempty"`
		UID       string `json:"uid,omitempty"`
		Version   string `json:"resourceVersion,omitempty"`
		Deleted   string `json:"deletionTimestamp,omitempty"`
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "    ")
	err := e.Encode(struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metadata          `json:"metadata"`
		Type       string            `json:"type,omitempty"`
		Data       map[string]string `json:"data"`
	}{manifestAPIVersion, manifestKind, metadata{o.Name, o.Namespace, o.UID, o.ResourceVersion, deleted}, o.Type, o.base64()})
	return out.Bytes(), err
}

func (o *Object) base64() map[string]string {
	data := make(map[string]string, len(o.Data.Reveal()))
	for key, value := range o.Data.Reveal() {
		data[key] = base64.StdEncoding.EncodeToString(value)
	}
	return data
}

// checkText refuses what a manifest cannot hold.
func (o *Object) checkText() error {
	texts := []string{o.Name, o.Namespace, o.UID, o.ResourceVersion, o.Type}
	for key := range o.Data.Reveal() {
		texts = append(texts, key)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return &Error{Check: CheckManifest, Got: strconv.Itoa(len(text)) + " bytes that are not", Want: "UTF-8"}
		}
	}
	return checkSize(o.Data.Reveal())
}
