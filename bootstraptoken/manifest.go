package bootstraptoken

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/secret"
)

// The one kind of object that a manifest holds.
const (
	manifestAPIVersion = "v1"
	manifestKind       = "Secret"
)

// manifest is a Secret of core/v1.
type manifest struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   manifestMetadata  `json:"metadata"`
	Type       string            `json:"type,omitempty"`
	Data       map[string]string `json:"data"` // base64
}

type manifestMetadata struct {
	Name              string `json:"name,omitempty"`
	Namespace         string `json:"namespace,omitempty"`
	UID               string `json:"uid,omitempty"`
	ResourceVersion   string `json:"resourceVersion,omitempty"`
	DeletionTimestamp string `json:"deletionTimestamp,omitempty"`
}

// RevealYAML returns the object as the manifest of a Secret, for kubectl apply or a file:
// base64 under data, members in the order of the alphabet. Whoever reads it has the
// token's secret. The error is [CheckManifest] if a text is not UTF-8, or CheckSize if
// there is more data than [MaxSecretSize].
func (o *Object) RevealYAML() ([]byte, error) {
	m, err := o.manifest()
	if err != nil {
		return nil, err
	}
	return marshalYAML(m)
}

// RevealJSON returns what [Object.RevealYAML] does as indented JSON.
func (o *Object) RevealJSON() ([]byte, error) {
	m, err := o.manifest()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "    ")
	err = e.Encode(m)
	return out.Bytes(), err
}

func (o *Object) manifest() (*manifest, error) {
	if err := o.checkText(); err != nil {
		return nil, err
	}
	m := &manifest{APIVersion: manifestAPIVersion, Kind: manifestKind, Type: o.Type, Data: map[string]string{},
		Metadata: manifestMetadata{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}}
	if o.Deleted != nil {
		m.Metadata.DeletionTimestamp = o.Deleted.UTC().Format(time.RFC3339)
	}
	for key, value := range o.Data.Reveal() {
		m.Data[key] = base64.StdEncoding.EncodeToString(value)
	}
	return m, nil
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

// ParseManifest reads the manifest of one Secret of core/v1, in YAML or JSON, as kubectl
// takes it and as kubectl get prints it. [ParseSecret] says whether it is a token's.
//
// It is strict where YAML is not: UTF-8, one document, no anchors, aliases, merge keys and
// tags, no key twice; apiVersion and kind must be there; a member that a Secret does not
// have is refused, and so is immutable, since a token must be able to be extended. Values
// must be texts, so a token-secret of digits alone needs quotes, as with kubectl; an
// expiration without quotes is taken, as with kubectl. data is canonical base64 with its
// padding and no line breaks. stringData, which people write, is taken as it stands; a key
// in both is refused, where the API server lets stringData win. Of metadata, name,
// namespace, uid, resourceVersion and deletionTimestamp are read.
//
// JSON is read as the YAML that it is: an escaped surrogate pair (\ud83d\ude00) is refused.
//
// The error is [CheckManifest], or CheckSize for more than [MaxManifestSize] bytes.
func ParseManifest(manifest []byte) (*Object, error) {
	if len(manifest) > MaxManifestSize {
		return nil, &Error{Check: CheckSize, Got: strconv.Itoa(len(manifest)) + " bytes", Want: "at most " + strconv.Itoa(MaxManifestSize)}
	}
	root, err := parseYAML(manifest, CheckManifest)
	if err != nil {
		return nil, err
	}
	m := manifestReader{object: new(Object), values: map[string][]byte{}}
	if err := m.read(root); err != nil {
		return nil, err
	}
	m.object.Data = secret.New(m.values)
	return m.object, nil
}

// A manifestReader fills an object from a document that parseYAML has checked.
type manifestReader struct {
	object  *Object
	values  map[string][]byte // of data and stringData
	version string
	kind    string
}

func (m *manifestReader) read(root yamlValue) error {
	err := root.members(func(name string, v yamlValue) (err error) {
		switch name {
		case "apiVersion":
			m.version, err = v.text()
		case "kind":
			m.kind, err = v.text()
		case "type":
			m.object.Type, err = textOrTime(v)
		case "metadata":
			err = membersOrNull(v, m.metadata)
		case "data":
			err = membersOrNull(v, func(key string, v yamlValue) error { return m.data(key, v, true) })
		case "stringData":
			err = membersOrNull(v, func(key string, v yamlValue) error { return m.data(key, v, false) })
		default:
			err = v.fail("a member that is not known", "the members of a Secret")
		}
		return err
	})
	if err != nil {
		return err
	}
	if m.version != manifestAPIVersion || m.kind != manifestKind {
		return &Error{Check: CheckManifest, Got: "apiVersion " + describe([]byte(m.version)) + ", kind " + describe([]byte(m.kind)), Want: "v1, Secret"}
	}
	return nil
}

func (m *manifestReader) metadata(name string, v yamlValue) (err error) {
	switch name {
	case "name":
		m.object.Name, err = textOrTime(v)
	case "namespace":
		m.object.Namespace, err = textOrTime(v)
	case "uid":
		m.object.UID, err = textOrTime(v)
	case "resourceVersion":
		m.object.ResourceVersion, err = textOrTime(v)
	case "deletionTimestamp":
		if v.isNull() {
			return nil
		}
		text, _ := textOrTime(v) // "", which is no time, for what is no text
		t, ok := parseTime(text)
		if !ok {
			return v.fail("no time", wantTime)
		}
		m.object.Deleted = &t
	case "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "finalizers", "generateName", "generation",
		"labels", "managedFields", "ownerReferences", "selfLink":
		// Nothing here depends on them.
	default:
		err = v.fail("a member that is not known", "the members of an object's metadata")
	}
	return err
}

// data reads one value of data, in base64, or of stringData.
func (m *manifestReader) data(key string, v yamlValue, encoded bool) error {
	if _, twice := m.values[key]; twice {
		return v.fail("a key that is in data and stringData", "in one of them")
	}
	text, err := textOrTime(v)
	if err != nil {
		return err
	}
	value := []byte(text)
	if encoded {
		// Strict still takes line breaks.
		value, err = base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || strings.ContainsAny(text, "\r\n") {
			return v.fail("another text in data", "canonical base64")
		}
	}
	m.values[key] = value
	return nil
}

// membersOrNull takes null for an object without members.
func membersOrNull(v yamlValue, f func(name string, value yamlValue) error) error {
	if v.isNull() {
		return nil
	}
	return v.members(f)
}

// textOrTime returns a text. A time without quotes is text too: kubectl takes it for one.
func textOrTime(v yamlValue) (string, error) {
	if v.node.Tag == "!!timestamp" {
		return v.node.Value, nil
	}
	return v.text()
}
