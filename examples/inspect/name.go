package main

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// distinguishedName reads a Name, a line for each attribute.
func (r *reader) distinguishedName(name string) {
	if r.done {
		return
	}
	value := ""
	if len(r.b) >= 2 && r.b[0] == byte(asn1.SEQUENCE) && r.b[1] == 0 {
		value = "empty"
	}
	r.t.in(name, value, func() {
		r.enter(name, asn1.SEQUENCE, func(in *reader, _ []byte) {
			for in.more() {
				in.enter("relative distinguished name", asn1.SET, func(in *reader, _ []byte) {
					for together := ""; in.more(); together = "+ " {
						in.nameAttribute(together)
					}
				})
			}
		})
	})
}

// nameAttribute reads one attribute of a Name: a type and a text.
func (r *reader) nameAttribute(together string) {
	r.enter("attribute of a name", asn1.SEQUENCE, func(in *reader, _ []byte) {
		id := in.oid("attribute of a name")
		label := together + strings.TrimPrefix(nameOf(id), "id-at-")
		tag, content, _, ok := in.element(label)
		if !ok {
			return
		}
		in.t.line(label, textOf(tag, content.b)+vendorOf(id, content.b))
	})
}

// textOf decodes the string types that names have.
func textOf(tag asn1.Tag, b []byte) string {
	const printable, t61, ia5, bmp asn1.Tag = 19, 20, 22, 30
	switch {
	case tag == asn1.UTF8String || tag == printable || tag == ia5 || tag == t61:
		if utf8.Valid(b) {
			return quoted(string(b))
		}
	case tag == bmp && len(b)%2 == 0:
		var units []uint16
		for i := 0; i < len(b); i += 2 {
			units = append(units, binary.BigEndian.Uint16(b[i:]))
		}
		return quoted(string(utf16.Decode(units)))
	}
	return "tag " + tagName(tag) + ", " + hexOf(b)
}

// vendorOf spells out a TPM manufacturer, "id:" and the hexadecimal of four letters.
func vendorOf(id oid.OID, b []byte) string {
	digits, ok := strings.CutPrefix(string(b), "id:")
	if letters, err := hex.DecodeString(digits); id == oid.TCGAtTPMManufacturer && ok && err == nil && len(letters) == 4 {
		return " = " + quoted(strings.TrimRight(string(letters), " \x00"))
	}
	return ""
}

// generalNames reads a GeneralNames, as in a subjectAltName: RFC 5280, 4.2.1.6.
func (r *reader) generalNames(name string) {
	r.enter(name, asn1.SEQUENCE, func(in *reader, _ []byte) {
		for in.more() {
			in.generalName()
		}
	})
}

func (r *reader) generalName() {
	tag, content, _, ok := r.element("general name")
	if !ok {
		return
	}
	switch tag {
	case 0x81:
		r.t.line("email", quoted(string(content.b)))
	case 0x82:
		r.t.line("DNS name", quoted(string(content.b)))
	case 0x86:
		r.t.line("URI", quoted(string(content.b)))
	case 0x87:
		if address, ok := netip.AddrFromSlice(content.b); ok {
			r.t.line("IP address", address.String())
			return
		}
		r.t.line("IP address", "NONE: "+hexOf(content.b))
	case 0xa0:
		r.t.in("other name", "", func() {
			if id := content.oid("type-id"); !content.done {
				r.t.line("type-id", nameOf(id))
			}
			content.enter("value", tag0Constructed, func(in *reader, _ []byte) {
				if tag, text, _, ok := in.element("value"); ok {
					r.t.line("value", textOf(tag, text.b))
				}
			})
			content.end()
		})
	case 0xa4:
		content.distinguishedName("directory name")
		content.end()
	default:
		r.t.line("general name "+tagName(tag), hexOf(content.b))
	}
}
