package vector

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/vectors"
)

// definition is the part of a JSON Schema that this test reads.
type definition struct {
	Type                 any                        `json:"type"`
	Description          string                     `json:"description"`
	Properties           map[string]json.RawMessage `json:"properties"`
	Required             []string                   `json:"required"`
	AdditionalProperties *bool                      `json:"additionalProperties"`
}

// The schema and the Go types have the same members, and ask for the same ones.
func TestSchema(t *testing.T) {
	text, err := vectors.FS.ReadFile("schema.json")
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
