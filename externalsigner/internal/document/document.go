// Package document reads a file with one document of YAML or JSON, in which no field stands twice.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// JSON converts a file, YAML or JSON, to JSON. It refuses a second document, a field that stands twice,
// and a document that is no object.
func JSON(text []byte) ([]byte, error) {
	documents := goyaml.NewDecoder(bytes.NewReader(text)) // as sigs.k8s.io/yaml, which stops after the first
	if documents.Decode(new(any)) == nil {
		switch err := documents.Decode(new(any)); {
		case err == nil:
			return nil, errors.New("more than one document")
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("after the document: %w", err)
		}
	}
	converted, err := yaml.YAMLToJSONStrict(text)
	if err == nil && !strings.HasPrefix(string(converted), "{") {
		err = errors.New("not an object")
	}
	return converted, err
}
