package attesttest

import (
	"bytes"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// TestTakeApart: in each of many formats, evidence is among the changes whose MAC is empty, or a part of
// itself, and whose name is the same.
func TestTakeApart(t *testing.T) {
	name, mac := "machine-1", bytes.Repeat([]byte{0x9c, 0x01, 0xe7, 0x5b}, 8)
	sized := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) } //nolint:gosec // small
	for format, encode := range map[string]func(mac []byte) []byte{
		"DER": func(mac []byte) []byte {
			der, _ := asn1.Marshal(struct {
				Name string `asn1:"utf8"`
				MAC  []byte
			}{name, mac})
			return der
		},
		"DER in DER": func(mac []byte) []byte {
			inner, _ := asn1.Marshal([][]byte{[]byte(name), mac})
			der, _ := asn1.Marshal(inner)
			return der
		},
		"JSON": func(mac []byte) []byte { b, _ := json.Marshal(map[string]any{"name": name, "mac": mac}); return b },
		"JSON in an array": func(mac []byte) []byte {
			b, _ := json.Marshal([]any{1, map[string]any{"name": name, "mac": mac}})
			return b
		},
		"JSON, hex": func(mac []byte) []byte { return fmt.Appendf(nil, `{"mac": "%x", "name": "%s"}`, mac, name) },
		"JSON in base64": func(mac []byte) []byte {
			b, _ := json.Marshal(map[string]any{"mac": mac, "name": name})
			return []byte(`{"document":"` + base64.StdEncoding.EncodeToString(b) + `"}`)
		},
		"words":      func(mac []byte) []byte { return []byte(name + "." + base64.RawURLEncoding.EncodeToString(mac)) },
		"lines":      func(mac []byte) []byte { return []byte("name: " + name + "\nmac: " + hex.EncodeToString(mac) + "\n") },
		"a query":    func(mac []byte) []byte { return []byte("name=" + name + "&mac=" + hex.EncodeToString(mac)) },
		"lengths":    func(mac []byte) []byte { return slices.Concat(sized([]byte(name)), sized(mac)) },
		"MAC first":  func(mac []byte) []byte { return slices.Concat(sized(mac), sized([]byte(name))) },
		"in lengths": func(mac []byte) []byte { return sized(slices.Concat([]byte{0, 1}, sized([]byte(name)), sized(mac))) },
		"protobuf": func(mac []byte) []byte {
			return slices.Concat([]byte{0x0a, byte(len(name))}, []byte(name), []byte{0x12, byte(len(mac))}, mac)
		},
		"CBOR": func(mac []byte) []byte {
			return slices.Concat([]byte{0xa2, 0x61, 'n', 0x60 | byte(len(name))}, []byte(name), []byte{0x61, 'm'}, appendCBORHead(nil, 2, len(mac)), mac)
		},
		"CBOR in a COSE_Sign1": func(mac []byte) []byte {
			inner := slices.Concat([]byte{0xa1, 0x01}, appendCBORHead(nil, 2, len(mac)), mac)
			return slices.Concat([]byte{0xd2, 0x84, 0x43, 0xa1, 0x01, 0x26, 0xa0}, appendCBORHead(nil, 2, len(inner)), inner, appendCBORHead(nil, 2, 96), make([]byte, 96))
		},
	} {
		t.Run(format, func(t *testing.T) {
			fields := takeApart(encode(mac)).fields
			for _, part := range []int{0, 8, 16} {
				want := encode(mac[:part])
				if !slices.ContainsFunc(fields, func(f field) bool {
					half, whole := f.content[:min(part, len(f.content))], f.content[:min(2*part, len(f.content))] // hexadecimal
					return bytes.Equal(f.with(half), want) || bytes.Equal(f.with(whole), want)
				}) {
					t.Errorf("no change leaves %d bytes of the MAC", part)
				}
			}
		})
	}
}

// FuzzTakeApart: no bytes are too odd, and none are changed in place.
func FuzzTakeApart(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"a":[1,"AAAAAAAAAAA",null,{"b":""}]}`, "a.bbbbbbbb.cccccccc", "\x30\x06\x04\x04\x30\x02\x05\x00", "\x00\x08aaaaaaaa\x58\x09bbbbbbbbb", `[""," "]`, `{"":0}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		a := takeApart(data)
		for _, f := range a.fields[:min(len(a.fields), 100)] {
			f.with(nil)
			f.with(append(bytes.Clone(f.content), f.content...))
		}
		if !bytes.Equal(before, data) {
			t.Error("the evidence was changed")
		}
	})
}
