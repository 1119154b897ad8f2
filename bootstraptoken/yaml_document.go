package bootstraptoken

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const maxYAMLDepth = 16

// parseYAML reads one YAML document of which every reader makes the same: UTF-8, no
// anchors and aliases, no merge keys, no tags, no duplicate keys, keys that are text,
// and no second document. JSON is such YAML but for the escape \/ and surrogate pairs.
func parseYAML(data []byte) (*yaml.Node, error) {
	if !utf8.Valid(data) || bytes.HasPrefix(data, []byte("\ufeff")) || bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("not UTF-8 text without a byte order mark")
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := dec.Decode(&document); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("something behind the first document")
	}
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil, errors.New("no document")
	}
	root := document.Content[0]
	return root, checkYAML(root, 1)
}

func checkYAML(n *yaml.Node, depth int) error {
	at := "line " + strconv.Itoa(n.Line)
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return errors.New(at + " has an anchor or alias")
	case n.Style&yaml.TaggedStyle != 0:
		return errors.New(at + " has a tag")
	case depth > maxYAMLDepth:
		return errors.New(at + " is nested too deep")
	case !slices.Contains([]string{"!!map", "!!seq", "!!str", "!!null", "!!bool", "!!int", "!!float", "!!timestamp"}, n.Tag):
		return fmt.Errorf("%s has a value of the type %.20q", at, n.Tag)
	}
	if n.Kind == yaml.MappingNode {
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode || key.Tag != "!!str" {
				return fmt.Errorf("line %d has a key that is no text", key.Line)
			}
			if seen[key.Value] {
				return fmt.Errorf("line %d has the key %.40q again", key.Line, key.Value)
			}
			seen[key.Value] = true
		}
	}
	for _, child := range n.Content {
		if err := checkYAML(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// A yamlValue is a node of a checked document and where it stands, for errors.
type yamlValue struct {
	node *yaml.Node
	path string
}

// members calls f for each member of an object, in order.
func (v yamlValue) members(f func(name string, value yamlValue) error) error {
	if v.node.Kind != yaml.MappingNode {
		return v.fail("an object")
	}
	for i := 0; i < len(v.node.Content); i += 2 {
		name := v.node.Content[i].Value
		if err := f(name, yamlValue{v.node.Content[i+1], v.path + "." + strconv.QuoteToASCII(name[:min(len(name), 40)])}); err != nil {
			return err
		}
	}
	return nil
}

// elements calls f for each element of a list; null is an empty one.
func (v yamlValue) elements(f func(value yamlValue) error) error {
	if v.isNull() {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		return v.fail("a list")
	}
	for i, child := range v.node.Content {
		if err := f(yamlValue{child, v.path + "[" + strconv.Itoa(i) + "]"}); err != nil {
			return err
		}
	}
	return nil
}

func (v yamlValue) text() (string, error) {
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!str" {
		return "", v.fail("text")
	}
	return v.node.Value, nil
}

func (v yamlValue) isNull() bool { return v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!null" }

// isEmpty reports whether the value is what clients take for one that is not there:
// null, "", false, and an object or list without members.
func (v yamlValue) isEmpty() bool {
	switch v.node.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		return len(v.node.Content) == 0
	}
	return v.isNull() || v.node.Tag == "!!str" && v.node.Value == "" || v.node.Tag == "!!bool" && v.node.Value == "false"
}

func (v yamlValue) fail(want string) error {
	return &Error{Check: CheckKubeconfig, Got: v.path + " of the type " + v.node.Tag, Want: want}
}
