package bootstraptoken

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parseYAML reads one YAML document that every reader understands in the same way: UTF-8, no
// anchors or aliases, no merge keys, no tags, no unquoted text that YAML 1.1 takes for something
// else, and no second document. JSON is such YAML except for the escape \/ and surrogate pairs.
// The readers below see to it that no key stands twice, and that nothing is left unread.
//
// Every refusal is an *Error by the check "kubeconfig". It gives the position, but no
// text of the document: any word of it may be a secret.
func parseYAML(data []byte) (*yaml.Node, error) {
	bad := func(got string) (*yaml.Node, error) {
		return nil, &Error{Check: checkKubeconfig, Got: got, Want: "one plain document of YAML or JSON"}
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
	return document.Content[0], checkAll(document.Content[0])
}

// yamlLine matches all that is repeated from the yaml package's errors, which quote documents.
var yamlLine = pattern(`^yaml: line ([0-9]{1,9}): `)

func yamlFault(err error) string {
	if line := yamlLine().FindStringSubmatch(err.Error()); line != nil {
		return "line " + line[1] + ": not YAML"
	}
	return "not YAML"
}

// fail returns the error for a value: its position, the fault, and the wanted form.
func fail(n *yaml.Node, check Check, got, want string) error {
	at := "line " + strconv.Itoa(n.Line) + ", column " + strconv.Itoa(n.Column) + ": "
	return &Error{Check: check, Got: at + got, Want: want}
}

// coreTags are the types of values that may be in a document, in words.
var coreTags = map[string]string{
	"!!map": "an object", "!!seq": "a list", "!!str": "text", "!!null": "nothing", "!!bool": "true or false",
	"!!int": "a number", "!!float": "a number", "!!timestamp": "a time", "!!merge": "a merge key",
}

// checkAll checks the value and everything in it.
func checkAll(n *yaml.Node) error {
	switch {
	case n.Anchor != "": // which precedes each alias
		return fail(n, checkKubeconfig, "an anchor", "none")
	case n.Style&yaml.TaggedStyle != 0:
		return fail(n, checkKubeconfig, "a tag", "none")
	case n.Tag == "!!str" && n.Style == 0 && otherInYAML11().MatchString(n.Value):
		return fail(n, checkKubeconfig, "a word that YAML 1.1 does not read as text", "quotes around it")
	}
	for _, child := range n.Content {
		if err := checkAll(child); err != nil {
			return err
		}
	}
	return nil
}

// otherInYAML11 matches unquoted text that is a boolean, or a number in base 60, in YAML 1.1
// (yaml.org/type, bool, int and float), which kubectl and clientcmd read.
var otherInYAML11 = pattern(`^(?:y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF|` +
	`[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?)$`)

// A reader reads a value of a document.
type reader func(*yaml.Node) error

// eachMember calls f for each member of an object, in order. No name may stand twice.
func eachMember(n *yaml.Node, f func(name string, value *yaml.Node) error) error {
	if n.Tag != "!!map" {
		return fail(n, checkKubeconfig, coreTags[n.Tag], "an object")
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for pair := range slices.Chunk(n.Content, 2) {
		name := pair[0].Value
		if seen[name] {
			return fail(pair[0], checkKubeconfig, "a key that stands twice", "each once")
		}
		seen[name] = true
		if err := f(name, pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// members are the names that an object may have, each with the function that reads its value.
type members map[string]reader

// read reads an object, and refuses members with other names.
func (m members) read(n *yaml.Node) error {
	return eachMember(n, func(name string, value *yaml.Node) error {
		if read := m[name]; read != nil {
			return read(value)
		}
		return fail(value, checkKubeconfig, "a member that is not known", "no such member")
	})
}

// list makes a reader of a list; null is an empty one.
func list(element reader) reader {
	return orNull(func(n *yaml.Node) error {
		if n.Tag != "!!seq" {
			return fail(n, checkKubeconfig, coreTags[n.Tag], "a list")
		}
		for _, child := range n.Content {
			if err := element(child); err != nil {
				return err
			}
		}
		return nil
	})
}

// orNull makes a reader that reads null as nothing.
func orNull(read reader) reader {
	return func(n *yaml.Node) error {
		if n.Tag == "!!null" {
			return nil
		}
		return read(n)
	}
}

// text makes a reader of text. An unquoted time is text too: kubectl and clientcmd read it as
// text.
func text(s *string) reader {
	return func(n *yaml.Node) error {
		if n.Tag != "!!str" && n.Tag != "!!timestamp" {
			return fail(n, checkKubeconfig, coreTags[n.Tag], "text: put it in quotes")
		}
		*s = n.Value
		return nil
	}
}

// empty makes a reader that refuses a member with a check of its own, unless it is null or the
// empty value of its type: "", false, or an object or list without members.
func empty(tag string, check Check) reader {
	return orNull(func(n *yaml.Node) error {
		nothing := n.Value == "" || tag == "!!bool" && n.Value == "false"
		if n.Tag == tag && len(n.Content) == 0 && nothing {
			return nil
		}
		return fail(n, check, coreTags[n.Tag], "no such member")
	})
}
