package document

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	for name, row := range map[string]struct{ text, want, err string }{
		"YAML":                    {"a: 1\n", `{"a":1}`, ""},
		"JSON":                    {`{"a": "x"}`, `{"a":"x"}`, ""},
		"marks around it":         {"---\na: 1\n---\n", "", "more than one document"},
		"a mark before it":        {"# c\n---\na: 1\n", `{"a":1}`, ""},
		"a second document":       {"a: 1\n---\nb: 1\n", "", "more than one document"},
		"what is no document":     {"a: 1\n---\n{\n", "", "after the document"},
		"a field that is twice":   {"a: {b: 1, b: 2}\n", "", `key "b" already set`},
		"a list":                  {"[1]\n", "", "not an object"},
		"nothing":                 {"", "", "not an object"},
		"an alias of itself":      {"a: &a [*a]\n", "", "contains itself"},
		"a document as large as ": {"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" + strings.Repeat("c: 1\n", 2), "", "already set"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := JSON([]byte(row.text))
			if row.err == "" && (err != nil || string(got) != row.want) {
				t.Errorf("got %s, %v", got, err)
			}
			if row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte("a: 1\n---\nb: [x]\n"))
	f.Add([]byte("a: &x {b: *x}\n"))
	f.Add([]byte(`{"a": {"b": [1, null, "\u0000"]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, err := JSON(text); err == nil && !json.Valid(got) {
			t.Errorf("got %q", got)
		}
	})
}
