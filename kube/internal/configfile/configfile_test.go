package configfile

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/refusal"
)

type file struct {
	Header `json:",inline"`
	Name   string `json:"name"`
}

// TestDecode reads a file with a section of somebody else's, and changes it.
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
