package main

import (
	"strings"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// extensions are attacks on the extensions that carry a machine's identity.
func (w *world) extensions() {
	id := oid.KubernetesNodeProviderIdentifier.String()
	one := func(value []byte) []vector.Extension { return []vector.Extension{{ID: id, Value: value}} }
	good := forge.Must(oid.MarshalProviderID(providerID))
	instance := forge.Must(tpmsim.DefaultInstance().Marshal())
	for _, a := range []struct {
		name, what, expect string
		extensions         []vector.Extension
	}{
		{"provider-id-alone-missing", "There are extensions, and none is the provider ID.", "provider-id-missing", []vector.Extension{{ID: "2.999.2", Value: good}}},
		{"provider-id-alone-in-no-extension", "There are no extensions.", "provider-id-missing", []vector.Extension{}},
		{"provider-id-alone-twice", "The extension stands there twice.", "provider-id-duplicate", append(one(good), one(good)...)},
		{"provider-id-alone-critical", "The extension is critical.", "provider-id-critical", []vector.Extension{{ID: id, Critical: true, Value: good}}},
		{"provider-id-alone-empty", "The text is empty.", "provider-id-size", one([]byte{12, 0})},
		{"provider-id-alone-too-long", "The text has 1025 bytes.", "provider-id-size", one(forge.TLV(12, []byte(strings.Repeat("x", 1025))))},
		{"provider-id-alone-not-utf8", "The text is no UTF-8.", "provider-id-text", one([]byte{12, 2, 0xc3, 0x28})},
		{"provider-id-alone-overlong-utf8", "The text has a slash in two bytes.", "provider-id-text", one([]byte{12, 2, 0xc0, 0xaf})},
		{"provider-id-alone-with-nul", "The text has a NUL byte.", "provider-id-text", one([]byte{12, 3, 'a', 0, 'b'})},
		{"provider-id-alone-with-line-feed", "The text has a line feed.", "provider-id-text", one([]byte{12, 3, 'a', 10, 'b'})},
		{"provider-id-alone-printable-string", "The text is a PrintableString.", "provider-id-encoding", one([]byte{19, 1, 'a'})},
		{"provider-id-alone-with-bytes-behind", "A byte stands behind the text.", "provider-id-encoding", one(append(append([]byte(nil), good...), 0))},
		{"provider-id-alone-with-long-length", "The length is in BER's long form.", "provider-id-encoding", one(forge.LongLength(good))},
		{"provider-id-alone-with-huge-length", "The text says that it is 4 GiB long.", "provider-id-encoding", one(forge.HugeLength(good))},
		{"provider-id-alone-constructed", "The text is in pieces, as BER allows.", "provider-id-encoding", one(forge.TLV(0x2c, good))},
		{"provider-id-alone-is-a-gce-instance", "The value is Google's instance identity.", "provider-id-encoding", one(instance)},
	} {
		w.add(&vector.Vector{Name: a.name, Class: "request", Level: vector.LevelProviderID, Description: a.what, Expect: a.expect,
			Package: vector.PackageOID, Extensions: a.extensions})
	}
	w.add(&vector.Vector{Name: "provider-id-alone", Class: "accepted", Level: vector.LevelProviderID,
		Description: "One extension with a UTF8String, not critical, among others.",
		Extensions:  append(one(good), vector.Extension{ID: "2.999.2", Critical: true, Value: []byte{5, 0}}), Result: &vector.Result{ProviderID: providerID}})
	w.instances(instance)
}

// instances are Google's instance identities.
func (w *world) instances(good []byte) {
	e := forge.Elements(good)
	number := forge.TLV(2, []byte{0x3a, 0xe5, 0x2c, 0x6d, 0x0e, 0x92, 0x1a, 0x00})
	for _, a := range []struct {
		name, what, expect string
		value              []byte
	}{
		{"instance-in-gkes-order", "The fields stand in the order of GKE's old approver, which took the instance for the project.", "gce-instance-number",
			forge.TLV(0x30, e[0], number, e[2], e[1], e[4])},
		{"instance-with-a-zero-number", "The instance ID is zero.", "gce-instance-number", forge.TLV(0x30, e[0], e[1], e[2], []byte{2, 1, 0}, e[4], e[5])},
		{"instance-with-a-negative-number", "The project number is negative.", "gce-instance-encoding", forge.TLV(0x30, e[0], []byte{2, 1, 0x80}, e[2], e[3], e[4], e[5])},
		{"instance-with-a-slash-in-the-project", "The project ID has a slash, which would make it another machine's identity.", "gce-instance-text",
			forge.TLV(0x30, e[0], e[1], forge.TLV(12, []byte("a/b")), e[3], e[4], e[5])},
		{"instance-with-bytes-behind", "A byte stands behind the identity.", "gce-instance-encoding", append(append([]byte(nil), good...), 0)},
		{"instance-with-a-field-behind", "A field stands behind the last one.", "gce-instance-encoding", forge.Appended(5, 0)(good)},
		{"instance-without-a-name", "The instance's name is left out.", "gce-instance-encoding", forge.TLV(0x30, e[:4]...)},
		{"instance-too-long", "The identity has over 4096 bytes.", "gce-instance-size", forge.TLV(0x30, e[0], e[1], e[2], e[3], forge.TLV(12, []byte(strings.Repeat("x", 4096))))},
		{"instance-is-a-provider-id", "The value is a provider ID.", "gce-instance-encoding", forge.Must(oid.MarshalProviderID(providerID))},
	} {
		w.add(&vector.Vector{Name: a.name, Class: "request", Level: vector.LevelGCEInstance, Description: a.what, Expect: a.expect,
			Package: vector.PackageOID, Value: a.value})
	}
	w.add(&vector.Vector{Name: "instance", Class: "accepted", Level: vector.LevelGCEInstance, Description: "Google's instance identity as in its AK certificates.",
		Value: good, Result: &vector.Result{Machine: "gce:tpmsim-project/4242424242424242424"}})
}
