package bootstraptoken

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const maxYAMLDepth = 16

// parseYAML reads one YAML document that every reader understands in the same way: UTF-8, no
// anchors or aliases, no merge keys, no tags, no duplicate keys, only text as keys, no
// unquoted text that YAML 1.1 takes for something else, and no second document. JSON is such
// YAML except for the escape \/ and surrogate pairs.
//
// Every refusal is an *Error with the given check. It gives the position, but nothing of what
// is there: any word of a document may be a secret.
func parseYAML(data []byte, check Check) (yamlValue, error) {
	bad := func(got string) (yamlValue, error) {
		return yamlValue{}, &Error{Check: check, Got: got, Want: "one plain document of YAML or JSON"}
	}
	switch {
	case bytes.HasPrefix(data, []byte("\ufeff")):
		return bad("a byte order mark in front of the text")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return bad("UTF-16 instead of UTF-8")
	case !utf8.Valid(data):
		return bad("text that is not UTF-8")
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := dec.Decode(&document); err != nil {
		return bad(yamlFault(err))
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return bad("something after the first document")
	}
	if len(document.Content) != 1 {
		return bad("no document")
	}
	root := yamlValue{document.Content[0], check}
	return root, root.checkAll(1)
}

// yamlLine matches all that is repeated from the yaml package's errors, which quote documents.
var yamlLine = regexp.MustCompile(`^yaml: line ([0-9]{1,9}): `)

func yamlFault(err error) string {
	if line := yamlLine.FindStringSubmatch(err.Error()); line != nil {
		return "line " + line[1] + ": not YAML"
	}
	return "not YAML"
}

// A yamlValue is a node of a document, and the check that it fails if it is not what the
// reader wants.
type yamlValue struct {
	node  *yaml.Node
	check Check
}

// fail gives the position of a value, what is wrong there, and what is wanted.
func (v yamlValue) fail(got, want string) error {
	at := "line " + strconv.Itoa(v.node.Line) + ", column " + strconv.Itoa(v.node.Column) + ": "
	return &Error{Check: v.check, Got: at + got, Want: want}
}

// coreTags are the types of values that may be in a document, in words.
var coreTags = map[string]string{
	"!!map": "an object", "!!seq": "a list", "!!str": "text", "!!null": "nothing", "!!bool": "true or false",
	"!!int": "a number", "!!float": "a number", "!!timestamp": "a time",
}

// checkAll checks the value and everything in it.
func (v yamlValue) checkAll(depth int) error {
	n := v.node
	switch {
	case n.Anchor != "": // which precedes each alias
		return v.fail("an anchor", "none")
	case n.Style&yaml.TaggedStyle != 0:
		return v.fail("a tag", "none")
	case depth > maxYAMLDepth:
		return v.fail("nested too deep", "at most "+strconv.Itoa(maxYAMLDepth)+" levels")
	case coreTags[n.Tag] == "":
		return v.fail("a value of another type", "text, numbers, lists and objects")
	case n.Tag == "!!str" && n.Style == 0 && otherInYAML11.MatchString(n.Value):
		return v.fail("a word that YAML 1.1 does not read as text", "quotes around it")
	}
	if n.Tag == "!!map" {
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := yamlValue{n.Content[i], v.check}
			if key.node.Tag != "!!str" {
				return key.fail("a key that is not text", "text")
			}
			if seen[key.node.Value] {
				return key.fail("a key that stands twice", "each once")
			}
			seen[key.node.Value] = true
		}
	}
	for _, child := range n.Content {
		if err := (yamlValue{child, v.check}).checkAll(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// otherInYAML11 matches unquoted text that is a boolean, or a number in base 60, in YAML 1.1
// (yaml.org/type, bool, int and float), which kubectl and clientcmd read.
var otherInYAML11 = regexp.MustCompile(`^(?:y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|` +
	`[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)

// members calls f for each member of an object, in order.
func (v yamlValue) members(f func(name string, value yamlValue) error) error {
	if v.node.Tag != "!!map" {
		return v.fail(coreTags[v.node.Tag], "an object")
	}
	for i := 0; i < len(v.node.Content); i += 2 {
		if err := f(v.node.Content[i].Value, yamlValue{v.node.Content[i+1], v.check}); err != nil {
			return err
		}
	}
	return nil
}

// members are the names that an object may have, each with the function that reads its value.
type members map[string]func(yamlValue) error

// read reads an object, and refuses members with other names.
func (m members) read(v yamlValue) error {
	return v.members(func(name string, v yamlValue) error {
		if read := m[name]; read != nil {
			return read(v)
		}
		return v.fail("a member that is not known", "no such member")
	})
}

// list makes a reader of a list; null is an empty one.
func list(element func(yamlValue) error) func(yamlValue) error {
	return orNull(func(v yamlValue) error {
		if v.node.Tag != "!!seq" {
			return v.fail(coreTags[v.node.Tag], "a list")
		}
		for _, child := range v.node.Content {
			if err := element(yamlValue{child, v.check}); err != nil {
				return err
			}
		}
		return nil
	})
}

// orNull makes a reader that reads null as nothing.
func orNull(read func(yamlValue) error) func(yamlValue) error {
	return func(v yamlValue) error {
		if v.node.Tag == "!!null" {
			return nil
		}
		return read(v)
	}
}

// text makes a reader of text. An unquoted time is text too: kubectl and clientcmd read it as
// text.
func text(s *string) func(yamlValue) error {
	return func(v yamlValue) error {
		if v.node.Tag != "!!str" && v.node.Tag != "!!timestamp" {
			return v.fail(coreTags[v.node.Tag], "text: put it in quotes")
		}
		*s = v.node.Value
		return nil
	}
}

// empty makes a reader that refuses a member with a check of its own, unless it is null or the
// empty value of its type: "", false, or an object or list without members.
func empty(tag string, check Check) func(yamlValue) error {
	return orNull(func(v yamlValue) error {
		nothing := v.node.Value == "" || tag == "!!bool" && v.node.Value == "false"
		if v.node.Tag == tag && len(v.node.Content) == 0 && nothing {
			return nil
		}
		v.check = check
		return v.fail(coreTags[v.node.Tag], "no such member")
	})
}

// decodeBase64 reads canonical base64 with padding and no line ends, which the decoder
// ignores.
func decodeBase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("base64 in several lines")
	}
	return base64.StdEncoding.Strict().DecodeString(text)
}
