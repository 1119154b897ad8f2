// Package configfile reads the configuration files of the module's programs strictly.
package configfile

import (
	"bytes"
	"encoding"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// APIVersion is the apiVersion of every configuration file. Its group is not the custom resources'
// group: a configuration file cannot be applied to a cluster.
const APIVersion = "config." + v1alpha1.Group + "/v1alpha1"

// MaxSize is the maximum length of a configuration file, and of a file that it names, in bytes.
const MaxSize = 1 << 20

// Header is the version and kind of a configuration file.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Check refuses a file of another version or kind.
func (h *Header) Check(kind string) error {
	got, want := refusal.Quote(h.APIVersion)+" and "+refusal.Quote(h.Kind), APIVersion+" and "+kind
	switch {
	case strings.HasPrefix(h.APIVersion, v1alpha1.Group+"/"):
		return refusal.Config("apiVersion and kind", got, want+": "+v1alpha1.Group+" is the group of the custom resources, "+
			"and this is a configuration file: write apiVersion: "+APIVersion)
	case h.APIVersion != APIVersion || h.Kind != kind:
		return refusal.Config("apiVersion and kind", got, want)
	}
	return nil
}

// A Section is a part of a file that another package decodes.
type Section []byte

// UnmarshalJSON keeps the section as it is.
func (s *Section) UnmarshalJSON(text []byte) error {
	*s = slices.Clone(text)
	return nil
}

// Decode reads the section: its fields must be known, and have values of the right type. Each
// field of a struct needs a JSON tag.
func (s Section) Decode(into any) error {
	if len(s) == 0 || s[0] != '{' {
		return refusal.Config("section", refusal.Quote(string(s)), "an object, such as {}")
	}
	return decode(s, into, "")
}

// errDocuments says that a file has more than one YAML document.
var errDocuments = errors.New("more than one document")

// nothing accepts any YAML document and drops it.
type nothing struct{}

// UnmarshalYAML reads nothing.
func (nothing) UnmarshalYAML(func(any) error) error { return nil }

// yaml12 matches the directive %YAML 1.2 before the document.
var yaml12 = regexp.MustCompile(`\A(?:[ \t]*(?:#[^\n]*)?\r?\n)*%YAML 1\.2`)

// JSON converts a file, YAML or JSON, with one document to JSON. It refuses duplicate fields.
// Scalars are read as in YAML 1.1, also in a file with the directive %YAML 1.2.
func JSON(text []byte) ([]byte, error) {
	if end := len(yaml12.Find(text)); end != 0 { // the parser refuses the number, and reads the rest
		text = slices.Concat(text[:end-1], []byte("1"), text[end:])
	}
	documents := goyaml.NewDecoder(bytes.NewReader(text)) // with the parser of sigs.k8s.io/yaml, which stops after one
	if documents.Decode(new(nothing)) == nil {
		switch err := documents.Decode(new(nothing)); {
		case err == nil:
			return nil, errDocuments
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("after the document: %w", err)
		}
	}
	return yaml.YAMLToJSONStrict(text)
}

// Decode reads a file, YAML or JSON, with one document: its fields must be known, there once,
// and have values of the right type. The top-level fields of some names are returned instead. An
// error says which field it is about.
func Decode(text []byte, into any, sections ...string) (map[string]Section, error) {
	text, err := JSON(text)
	if err != nil {
		return nil, err
	}
	cut := map[string]Section{}
	var fields map[string]stdjson.RawMessage
	if len(sections) != 0 && stdjson.Unmarshal(text, &fields) == nil {
		for _, name := range sections {
			if section, ok := fields[name]; ok {
				cut[name] = Section(section)
				delete(fields, name)
			}
		}
		if text, err = stdjson.Marshal(fields); err != nil {
			return nil, err
		}
	}
	return cut, decode(text, into, "")
}

// decode reads JSON strictly. An error names the innermost value that cannot be read, by its path
// below at. The errors of the decoder name neither an index nor a value with its own decoder.
func decode(text []byte, into any, at string) error {
	strict, err := json.UnmarshalStrict(text, into)
	if err = errors.Join(append(strict, err)...); err == nil {
		return nil
	}
	t := reflect.TypeOf(into).Elem()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for _, c := range children(text, t, at) {
		if inner := decode(c.text, reflect.New(c.of).Interface(), c.at); inner != nil {
			return inner
		}
	}
	if wrong, ok := errors.AsType[*stdjson.UnmarshalTypeError](err); ok && t.Kind() == reflect.String {
		err = fmt.Errorf("a %s, want text: put it in quotes", wrong.Value)
	}
	if at == "" {
		return err
	}
	return fmt.Errorf("%s: %w", strings.TrimPrefix(at, "."), err)
}

// A child is a value in a list or an object.
type child struct {
	text []byte
	of   reflect.Type
	at   string
}

// children are the values in JSON of a type, unless that reads itself.
func children(text []byte, t reflect.Type, at string) (all []child) {
	var fields map[string]stdjson.RawMessage
	var elements []stdjson.RawMessage
	_, isJSON := reflect.TypeAssert[stdjson.Unmarshaler](reflect.New(t))
	_, isText := reflect.TypeAssert[encoding.TextUnmarshaler](reflect.New(t))
	switch kind := t.Kind(); {
	case isJSON, isText:
	case kind == reflect.Slice && stdjson.Unmarshal(text, &elements) == nil:
		for i, element := range elements {
			all = append(all, child{element, t.Elem(), at + "[" + strconv.Itoa(i) + "]"})
		}
	case kind == reflect.Map && stdjson.Unmarshal(text, &fields) == nil:
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			all = append(all, child{fields[name], t.Elem(), at + "." + name})
		}
	case kind == reflect.Struct && stdjson.Unmarshal(text, &fields) == nil:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if value, ok := fields[name]; ok && name != "" {
				all = append(all, child{value, f.Type, at + "." + name})
			}
		}
	}
	return all
}
