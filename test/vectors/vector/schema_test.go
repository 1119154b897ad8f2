package vector

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// definition is what this test reads of a JSON Schema.
type definition struct {
	Type                 any                        `json:"type"`
	Description          string                     `json:"description"`
	Properties           map[string]json.RawMessage `json:"properties"`
	Required             []string                   `json:"required"`
	AdditionalProperties *bool                      `json:"additionalProperties"`
}

// The schema and the Go types have the same members, and ask for the same ones.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, SchemaFile))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]definition `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	types := map[string]any{"vector": Vector{}, "result": Result{}, "node": Node{}, "statement": Statement{}, "rawSignature": RawSignature{},
		"bundle": Bundle{}, "extension": Extension{}, "environment": Environment{}, "ringKey": RingKey{}, "issuer": Issuer{}, "ekIssuer": EKIssuer{}, "profile": Profile{},
		"quote": Quote{}, "pcr": PCR{}, "pcrSelection": PCRSelection{}, "ek": EK{}, "credential": Credential{}, "operation": Operation{},
		"registryFound": RegistryFound{}, "firstUse": FirstUse{}, "ekProfile": EKProfile{}, "deniedTPM": DeniedTPM{},
		"policy": Policy{}, "machine": Machine{}, "member": Member{}, "record": Record{}, "token": Token{}, "signer": Signer{}, "boot": Boot{}}
	names := slices.Sorted(maps.Keys(types))
	if got := slices.Sorted(maps.Keys(schema.Defs)); !slices.Equal(got, slices.Sorted(slices.Values(append(names, "object")))) {
		t.Errorf("the schema defines %q, the types are %q and object", got, names)
	}
	for name, v := range types {
		d := schema.Defs[name]
		if d.AdditionalProperties == nil || *d.AdditionalProperties || d.Description == "" {
			t.Errorf("%s: no description, or further members allowed", name)
		}
		members, required := members(reflect.TypeOf(v))
		if got := slices.Sorted(maps.Keys(d.Properties)); !slices.Equal(got, members) {
			t.Errorf("%s: the schema has %q, the type %q", name, got, members)
		}
		if got := slices.Sorted(slices.Values(d.Required)); !slices.Equal(got, required) {
			t.Errorf("%s: the schema asks for %q, the type for %q", name, got, required)
		}
	}
}

// members lists the JSON names of a struct's fields, and those always written.
func members(t reflect.Type) (all, required []string) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
		if options == "" {
			required = append(required, name)
		}
	}
	slices.Sort(all)
	slices.Sort(required)
	return all, required
}

// The list for people names every vector, with its expectation.
func TestIndex(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	set := loadAll(t)
	lines := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| [") {
			lines++
		}
	}
	if lines != len(set.Vectors) {
		t.Errorf("%d lines for %d vectors", lines, len(set.Vectors))
	}
	for _, v := range set.Vectors {
		want := "| [" + v.Name + "](" + v.Class + "/" + v.Name + ".json) | " + v.Level + " | "
		if v.Expect == "" {
			want += "accepted"
		} else {
			want += "`" + v.Expect + "`"
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("no line %q", want)
		}
	}
}
