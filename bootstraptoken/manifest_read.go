package bootstraptoken

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// CheckManifest: a text is not the manifest of one Secret. The error gives the place, and
// never a value of the Secret's data.
const CheckManifest Check = "manifest"

// ParseManifest reads the manifest of one Secret of core/v1, in YAML or JSON, as kubectl
// takes it and as kubectl get prints it. [Decode] says whether it is a token's.
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
	root, err := parseYAML(manifest)
	if err != nil {
		// The text of the cause may quote a value, so it is no cause here.
		return nil, errManifest("YAML that is refused: "+describe([]byte(err.Error())), "one plain document of YAML or JSON")
	}
	m := manifestReader{object: &Object{Data: Data{}}}
	if err := m.read(root); err != nil {
		return nil, err
	}
	return m.object, nil
}

// A manifestReader fills an object from a document that parseYAML has checked.
type manifestReader struct {
	object  *Object
	version string
	kind    string
}

func (m *manifestReader) read(root *yaml.Node) error {
	err := eachMember(root, "the manifest", func(name string, value *yaml.Node) (err error) {
		switch name {
		case "apiVersion":
			m.version, err = textOf(value, name)
		case "kind":
			m.kind, err = textOf(value, name)
		case "type":
			m.object.Type, err = textOf(value, name)
		case "metadata":
			err = eachMember(value, name, m.metadata)
		case "data":
			err = eachMember(value, name, func(key string, value *yaml.Node) error { return m.data(key, value, true) })
		case "stringData":
			err = eachMember(value, name, func(key string, value *yaml.Node) error { return m.data(key, value, false) })
		default:
			err = errManifest("the member "+describe([]byte(name)), "the members of a Secret")
		}
		return err
	})
	if err != nil {
		return err
	}
	if m.version != manifestAPIVersion || m.kind != manifestKind {
		return errManifest("apiVersion "+describe([]byte(m.version))+", kind "+describe([]byte(m.kind)), "v1, Secret")
	}
	return nil
}

func (m *manifestReader) metadata(name string, value *yaml.Node) (err error) {
	switch name {
	case "name":
		m.object.Name, err = textOf(value, name)
	case "namespace":
		m.object.Namespace, err = textOf(value, name)
	case "uid":
		m.object.UID, err = textOf(value, name)
	case "resourceVersion":
		m.object.ResourceVersion, err = textOf(value, name)
	case "deletionTimestamp":
		if value.Tag == "!!null" {
			return nil
		}
		m.object.Deleted, err = timeOf(value, name)
	case "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "finalizers", "generateName", "generation",
		"labels", "managedFields", "ownerReferences", "selfLink":
		// Nothing here depends on them.
	default:
		err = errManifest("the member "+describe([]byte(name))+" of metadata", "the members of an object's metadata")
	}
	return err
}

// data reads one value of data, in base64, or of stringData.
func (m *manifestReader) data(key string, node *yaml.Node, encoded bool) error {
	if _, twice := m.object.Data[key]; twice {
		return errManifest("the key "+describe([]byte(key))+" in data and stringData", "one of them")
	}
	text, err := textOf(node, "the key "+describe([]byte(key)))
	if err != nil {
		return err
	}
	value := []byte(text)
	if encoded {
		// Strict still takes line breaks.
		value, err = base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || strings.ContainsAny(text, "\r\n") {
			return errManifest("the key "+describe([]byte(key))+" in data with something else", "canonical base64")
		}
	}
	m.object.Data[key] = value
	return nil
}

// eachMember calls f for the members of an object; null is one without members.
func eachMember(node *yaml.Node, what string, f func(name string, value *yaml.Node) error) error {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return nil
	}
	if node.Kind != yaml.MappingNode {
		return errManifest(what+" as "+node.Tag, "an object")
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if err := f(node.Content[i].Value, node.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// textOf returns a text. A time without quotes is text too: kubectl takes it for one.
func textOf(node *yaml.Node, what string) (string, error) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" && node.Tag != "!!timestamp" {
		return "", errManifest(what+" as "+node.Tag, "text: put it in quotes")
	}
	return node.Value, nil
}

func timeOf(node *yaml.Node, what string) (*time.Time, error) {
	text, err := textOf(node, what)
	if err != nil {
		return nil, err
	}
	t, ok := parseTime(text)
	if !ok {
		return nil, errManifest(what+" as "+describe([]byte(text)), wantTime)
	}
	return &t, nil
}

func errManifest(got, want string) error {
	return &Error{Check: CheckManifest, Got: got, Want: want}
}
