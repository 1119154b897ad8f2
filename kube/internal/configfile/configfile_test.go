package configfile

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

type file struct {
	Header `json:",inline"`
	Name   string `json:"name"`
}

// TestDecode reads a file with a section of another package, and changes it.
func TestDecode(t *testing.T) {
	const good = "apiVersion: config.nodeattest.github.io/v1alpha1\nkind: K\nname: node\nrack: {slot: 1}\n"
	for name, row := range map[string]struct{ old, with, want string }{
		"as it is":                       {"", "", ""},
		"an unknown section":             {"rack:", "tower:", "tower"},
		"a section twice":                {"rack: {slot: 1}", "rack: {slot: 1}\nrack: {slot: 1}", "rack"},
		"an unknown field of a section":  {"slot", "row", "row"},
		"an upper-case field of it":      {"slot", "Slot", "Slot"},
		"a section that is nothing":      {"{slot: 1}", "", "an object"},
		"a section that is a list":       {"{slot: 1}", "[]", "an object"},
		"two documents":                  {"name: node", "name: node\n---", "more than one document"},
		"the custom resources' group":    {"config.node", "node", "write apiVersion: config.nodeattest.github.io/v1alpha1"},
		"another version":                {"v1alpha1", "v1", "config.nodeattest.github.io/v1alpha1 and K"},
		"another kind":                   {"kind: K", "kind: L", `"L"`},
		"another group":                  {"config.", "conf.", "conf."},
		"a version of another file's":    {"config.nodeattest.github.io", "", "apiVersion"},
		"a field of the wrong type":      {"name: node", "name: []", "name"},
		"a field of the section at home": {"name: node", "slot: 1", "slot"},
	} {
		t.Run(name, func(t *testing.T) {
			var f file
			sections, err := Decode([]byte(strings.Replace(good, row.old, row.with, 1)), &f, "rack", "shelf")
			if err == nil {
				err = f.Check("K")
			}
			var rack struct {
				Slot int `json:"slot"`
			}
			if err == nil {
				err = sections["rack"].Decode(&rack)
			}
			if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
			if err == nil && (rack.Slot != 1 || f.Name != "node" || len(sections) != 1) {
				t.Errorf("got %+v, %+v, %v", f, rack, sections)
			}
		})
	}
	if err := Section(nil).Decode(new(file)); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("a section that is not there: %v", err)
	}
}

// TestDocuments reads one document in each of its spellings, and never two.
func TestDocuments(t *testing.T) {
	const one, two = "name: node-1\n", "name: node-2\n"
	for _, text := range []string{one, "---\n" + one, "# nodes\n---\n" + one, "%YAML 1.1\n---\n" + one, "%YAML 1.2\n---\n" + one,
		"--- # nodes\n" + one, "--- {name: node-1}\n", one + "...\n", "---\r\nname: node-1\r\n...\r\n", "\ufeff" + one, one + "...\n# the end\n", `{"name": "node-1"}`} {
		var f file
		if _, err := Decode([]byte(text), &f); err != nil || f.Name != "node-1" {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
	for _, between := range []string{"---\n", "--- # more\n", "---\t\n", "...\n---\n", "---\n---\n", "...\n%YAML 1.1\n---\n"} {
		if _, err := Decode([]byte(one+between+two), new(file)); !errors.Is(err, errDocuments) {
			t.Errorf("%q between two documents: %v", between, err)
		}
	}
	for _, after := range []string{"...\n" + two, "---\n", "--- {name: node-2}\n", "---\n}\n"} {
		if _, err := Decode([]byte(one+after), new(file)); err == nil {
			t.Errorf("%q after a document is dropped", after)
		}
	}
	var f file // three hyphens inside of a text begin nothing
	if _, err := Decode([]byte("name: |\n  a\n  ---\n  b\n"), &f); err != nil || f.Name != "a\n---\nb\n" {
		t.Errorf("got %q, %v", f.Name, err)
	}
}

// TestScalars reads what YAML takes for a number or a truth value as itself, or not at all.
func TestScalars(t *testing.T) {
	for _, name := range []string{"0010", "00012345", "1e3", "0x1f", "1_000", "1.10", "no", "off", "y", "0b11", "0o17", "666", "1:20", "2026-01-02",
		"2026-01-02T03:04:05Z", "202601021234567890", "'0010'", `"no"`, "!!str 666"} {
		var f file
		if _, err := Decode([]byte("name: "+name+"\n"), &f); err == nil && f.Name != strings.Trim(strings.TrimPrefix(name, "!!str "), `'"`) {
			t.Errorf("name: %s is read as %q", name, f.Name)
		} else if err != nil && !strings.Contains(err.Error(), "name: ") {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && strings.ContainsAny(name, `'"!`) {
			t.Errorf("name: %s is refused: %v", name, err)
		}
	}
}

// TestErrorNamesTheField has an error say where in the file it is.
func TestErrorNamesTheField(t *testing.T) {
	type rack struct {
		file
		Nodes   []*file            `json:"nodes"`
		Labels  map[string]file    `json:"labels"`
		Address netip.Addr         `json:"address"`
		Nets    []netip.Prefix     `json:"nets"`
		Parts   map[string]Section `json:"parts"`
	}
	for text, want := range map[string]string{
		"name: 666":                                  "name: ",
		"nodes: [{name: a}, {name: 666}]":            "nodes[1].name: ",
		"nodes: [{name: a}, {name: b, Name: c}]":     "nodes[1]: unknown field \"Name\"",
		"nodes: [a]":                                 "nodes[0]: ",
		"nodes: {}":                                  "nodes: ",
		"labels: {z: {name: a}, b: {name: 1}}":       "labels.b.name: ",
		"address: 192.0.2.1/24":                      "address: ",
		"nets: ['10.0.0.0/8', '2001:db8:2403:3/64']": "nets[1]: ",
		"name: [] # and a section is for another package\nparts: {a: {b: 1}}": "name: ",
		"[]": "json: ",
	} {
		if _, err := Decode([]byte(text), new(rack)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	err := Section(`{"nodes": [{"name": 1}]}`).Decode(new(rack))
	if err == nil || !strings.HasPrefix(err.Error(), "nodes[0].name: ") {
		t.Errorf("in a section: %v", err)
	}
	if _, err := Decode([]byte("nodes: [{name: a}, null]\nlabels: null\naddress: 192.0.2.1\n"), new(rack)); err != nil {
		t.Error(err)
	}
}

// FuzzDecode checks that a file and its JSON are read alike.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{"--- # a\nname: a\n...\n", "%YAML 1.2\n---\n{name: a}\n", "name: a\n--- {name: b}\n", "name: 1e3", "name: &a b\napiVersion: *a\n", `{"name": "a"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var yaml, json file
		if _, err := Decode(text, &yaml); err != nil {
			return
		}
		text, err := JSON(text)
		if err == nil {
			_, err = Decode(text, &json)
		}
		if err != nil || yaml != json {
			t.Errorf("%s: %+v and %+v, %v", text, yaml, json, err)
		}
	})
}
