// Package configfile reads the configuration files of the module's programs strictly.
package configfile

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"slices"
	"strings"

	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// APIVersion is what every configuration file says in its first line. Its group is not that of
// the custom resources: nobody can apply a configuration file to a cluster.
const APIVersion = "config." + v1alpha1.Group + "/v1alpha1"

// MaxSize is the maximum length of a configuration file, and of a file that it names, in bytes.
const MaxSize = 1 << 20

// Header is what a configuration file says it is.
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

// A Section is a part of a file whose form is another package's to say.
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
	strict, err := json.UnmarshalStrict(s, into)
	return errors.Join(append(strict, err)...)
}

// errDocuments says that a file has more than one YAML document.
var errDocuments = errors.New("more than one document")

// Decode reads a file, YAML or JSON, with one document: its fields must be known, there once,
// and have values of the right type. The top-level fields of some names are returned instead.
func Decode(text []byte, into any, sections ...string) (map[string]Section, error) {
	for line := range bytes.Lines(text) {
		if bytes.Equal(bytes.TrimRight(line, " \t\r\n"), []byte("---")) {
			return nil, errDocuments
		}
	}
	text, err := yaml.YAMLToJSONStrict(text)
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
	strict, err := json.UnmarshalStrict(text, into)
	return cut, errors.Join(append(strict, err)...)
}
