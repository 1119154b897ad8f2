package csr

import (
	"bytes"
	"unicode/utf8"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// NameAttribute is one attribute of a distinguished name as it was received.
type NameAttribute struct {
	// RDN is the index of the relative distinguished name that holds the attribute;
	// attributes with the same RDN stand in one set.
	RDN int
	// Type is what the attribute states.
	Type oid.OID
	// Tag is the ASN.1 tag of the value: 12 UTF8String, 19 PrintableString, 22
	// IA5String, or another.
	Tag byte
	// Value is the content of the value without tag and length.
	Value []byte
}

// Text returns the value where it is a UTF8String, PrintableString or IA5String that
// keeps its type's alphabet, as RFC 5280, 4.1.2.4 has it for new names.
func (a *NameAttribute) Text() (string, bool) {
	switch a.Tag {
	case byte(cryptobyteasn1.UTF8String):
		return string(a.Value), utf8.Valid(a.Value)
	case byte(cryptobyteasn1.PrintableString):
		return string(a.Value), every(a.Value, isPrintable)
	case byte(cryptobyteasn1.IA5String):
		return string(a.Value), every(a.Value, func(c byte) bool { return c < utf8.RuneSelf })
	}
	return "", false
}

func every(b []byte, is func(byte) bool) bool {
	for _, c := range b {
		if !is(c) {
			return false
		}
	}
	return true
}

// isPrintable is the alphabet of PrintableString (ITU-T X.680, table 10).
func isPrintable(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		bytes.IndexByte([]byte(" '()+,-./:=?"), c) >= 0
}

// readName reads the content of a Name: sets of attributes, none empty, each in the
// order of DER.
func readName(name cryptobyte.String) ([]NameAttribute, error) {
	attributes := make([]NameAttribute, 0, 4)
	for rdn := 0; !name.Empty(); rdn++ {
		var set, previous cryptobyte.String
		if !name.ReadASN1(&set, cryptobyteasn1.SET) || set.Empty() {
			return nil, malformedName()
		}
		for !set.Empty() {
			var element, pair, value cryptobyte.String
			var tag cryptobyteasn1.Tag
			a := NameAttribute{RDN: rdn}
			if !set.ReadASN1Element(&element, cryptobyteasn1.SEQUENCE) || bytes.Compare(previous, element) >= 0 {
				return nil, malformedName()
			}
			previous = element
			if !element.ReadASN1(&pair, cryptobyteasn1.SEQUENCE) || !oid.Read(&pair, &a.Type) ||
				!pair.ReadAnyASN1(&value, &tag) || !pair.Empty() {
				return nil, malformedName()
			}
			a.Tag, a.Value = byte(tag), value
			attributes = append(attributes, a)
		}
	}
	return attributes, nil
}

func malformedName() error {
	return &Error{Check: CheckRequestSubject, Got: "a malformed name", Want: "a canonical Name"}
}
