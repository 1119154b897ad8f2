// Package oid names the object identifiers that certificates, certificate requests
// and TPM evidence are made of, and reads and writes the extensions that carry
// machine identifiers: the provider ID of a Kubernetes node and the identity of a
// Google Compute Engine instance.
//
// An [OID] holds the content bytes of its DER encoding. So it is comparable without
// decoding, works in a switch statement and as a constant, and, unlike encoding/asn1, holds
// arcs of any size:
//
//	switch id {
//	case oid.SubjectAltName:
//	case oid.KubernetesNodeProviderIdentifier:
//	}
package oid

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/refusal"
)

// maxSize is the length in bytes of the longest content that [Parse], [FromASN1] and [Read]
// accept. It leaves room for three arcs of 128 bits and more.
const maxSize = 128

// maxDotted is the length of the longest text for maxSize bytes: a byte of content holds
// seven bits, and its longest text is ".127".
const maxDotted = 4*maxSize + 1

// OID is an object identifier: the content bytes of its DER encoding (ITU-T X.690, 8.19),
// without tag and length. The zero value is not an identifier. Values come from this
// package's constants, [Parse], [FromASN1] and [Read]; a conversion from a string is not
// checked, and one from dotted text is another identifier: see [OID.Valid].
type OID string

func errSyntax(got string) error {
	return checkSyntax.Refuse(refusal.Quote(got), "arcs in decimal, as 1.2.3")
}

func errSize() error { return checkSize.Refuse("more bytes", "at most "+strconv.Itoa(maxSize)) }

// The reasons why [Parse] and [FromASN1] refuse an identifier.
const (
	// checkSyntax: the text is not two or more decimal arcs without signs or leading zeros,
	// joined by single dots, or the first two arcs are out of range (the first is 0, 1 or 2;
	// below 0 and 1 the second is at most 39).
	checkSyntax refusal.Check = "oid-syntax"
	// checkSize: the content would be longer than 128 bytes.
	checkSize refusal.Check = "oid-size"
)

// Parse reads an identifier in dotted decimal, such as "2.23.133.8.1", in its only
// canonical form; arcs may have any size. It returns the check "oid-syntax" or "oid-size".
// For every id that it returns, id.String() is the input.
func Parse(dotted string) (OID, error) {
	if len(dotted) > maxDotted {
		return "", errSize()
	}
	id, err := x509.ParseOID(dotted)
	if err != nil || id.String() != dotted { // it accepts leading zeros
		return "", errSyntax(dotted)
	}
	content, err := id.MarshalBinary()
	if err != nil || len(content) > maxSize {
		return "", errSize()
	}
	return OID(content), nil
}

func appendBase128(b []byte, v uint64) []byte {
	shift := 0
	for v>>shift > 0x7f {
		shift += 7
	}
	for ; shift > 0; shift -= 7 {
		b = append(b, byte(v>>shift)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

// FromASN1 converts an identifier from encoding/asn1. It returns the check "oid-syntax" if id
// has fewer than two arcs, a negative one, or first arcs out of range, and the check "oid-size"
// if it is too long.
func FromASN1(id asn1.ObjectIdentifier) (OID, error) { return Parse(id.String()) }

// decode reads o if it is the content of a DER object identifier: arcs in their shortest
// form, the last one complete, no longer than maxSize.
func (o OID) decode() (id x509.OID, ok bool) {
	ok = len(o) <= maxSize && id.UnmarshalBinary([]byte(o)) == nil
	return id, ok
}

// Valid reports whether o is an identifier, and not the text of one that was converted and
// should have been parsed: OID("2.23.133.8.3") has the bytes of an identifier, but of one
// below 1.10, where no OIDs are.
func (o OID) Valid() bool {
	_, ok := o.decode()
	_, err := Parse(string(o))
	return ok && err != nil
}

// String returns the identifier in dotted decimal. For a value that is not an identifier it
// returns "invalid:" and the bytes in hexadecimal.
func (o OID) String() string {
	id, ok := o.decode()
	if !ok {
		return "invalid:" + hex.EncodeToString([]byte(o))
	}
	return id.String()
}

// ASN1 converts o to a new encoding/asn1 identifier. It returns false if o is not an
// identifier, or if encoding/asn1 would refuse it because an arc has more than 31 bits.
func (o OID) ASN1() (id asn1.ObjectIdentifier, ok bool) {
	var b cryptobyte.Builder
	Add(&b, o)
	der, err := b.Bytes()
	s := cryptobyte.String(der)
	ok = err == nil && s.ReadASN1ObjectIdentifier(&id)
	return id, ok
}

// Equal reports whether o and id are the same identifier. It allocates nothing.
func (o OID) Equal(id asn1.ObjectIdentifier) bool {
	if len(id) < 2 || len(id) > maxSize+1 || slices.Min(id) < 0 || id[0] > 2 || id[0] < 2 && id[1] >= 40 || len(o) > maxSize {
		return false
	}
	var buf [maxSize]byte
	b := appendBase128(buf[:0], 40*uint64(id[0])+uint64(id[1]))
	for _, arc := range id[2:] {
		b = appendBase128(b, uint64(arc))
	}
	return string(o) == string(b)
}

// Add appends o as a DER OBJECT IDENTIFIER. A value that is not an identifier sets the
// builder's error.
func Add(b *cryptobyte.Builder, o OID) {
	if _, ok := o.decode(); !ok {
		b.SetError(errSyntax(o.String()))
		return
	}
	b.AddASN1(cryptobyteasn1.OBJECT_IDENTIFIER, func(c *cryptobyte.Builder) { c.AddBytes([]byte(o)) })
}

// Read removes a DER OBJECT IDENTIFIER from the front of s: tag 6, minimal length, 1 to
// 128 content bytes, arcs in their shortest form. If s does not begin with one, it
// returns false and leaves *out unchanged. An identifier that this package knows is returned
// without an allocation.
func Read(s *cryptobyte.String, out *OID) bool {
	var content cryptobyte.String
	if s == nil || out == nil || !s.ReadASN1(&content, cryptobyteasn1.OBJECT_IDENTIFIER) {
		return false
	}
	if i, known := find(content); known {
		*out = identifiers[i].id
		return true
	}
	_, ok := OID(content).decode()
	if ok {
		*out = OID(content)
	}
	return ok
}
