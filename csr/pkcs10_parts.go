package csr

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"strconv"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// nameAttribute is one attribute of a distinguished name, as received.
type nameAttribute struct {
	// RDN is the index of the relative distinguished name that holds the attribute;
	// attributes with the same RDN are in one set.
	RDN int
	// Type is the type of the attribute.
	Type oid.OID
	// Tag is the ASN.1 tag of the value: 12 UTF8String, 19 PrintableString, 22
	// IA5String, or another.
	Tag byte
	// Value is the content of the value, without tag and length.
	Value []byte
}

// next removes and returns the first element of a SET OF. ok is false if it is malformed or does not
// follow the previous one in DER order.
func next(set, previous *cryptobyte.String) (element cryptobyte.String, ok bool) {
	var tag cryptobyteasn1.Tag
	ok = set.ReadAnyASN1Element(&element, &tag) && bytes.Compare(*previous, element) < 0
	*previous = element
	return element, ok
}

// readName reads the content of a Name: sets of attributes, none empty, each in DER order.
func readName(name cryptobyte.String) (attributes []nameAttribute, ok bool) {
	attributes = make([]nameAttribute, 0, 2)
	for rdn := 0; !name.Empty(); rdn++ {
		var set, previous cryptobyte.String
		if !name.ReadASN1(&set, cryptobyteasn1.SET) || set.Empty() {
			return nil, false
		}
		for !set.Empty() {
			var pair, value cryptobyte.String
			var tag cryptobyteasn1.Tag
			a := nameAttribute{RDN: rdn}
			element, ordered := next(&set, &previous)
			if !ordered || !element.ReadASN1(&pair, cryptobyteasn1.SEQUENCE) || !oid.Read(&pair, &a.Type) ||
				!pair.ReadAnyASN1(&value, &tag) || !pair.Empty() {
				return nil, false
			}
			a.Tag, a.Value = byte(tag), value
			attributes = append(attributes, a)
		}
	}
	return attributes, true
}

// The maximum numbers of attributes and extensions in a request, small enough that comparing
// all pairs costs next to nothing. A node's request has one attribute and at most three
// extensions.
const (
	maxAttributes = 16
	maxExtensions = 32
)

// readAttributes reads the content of a request's attributes (RFC 2986, 4.1): a set in DER
// order, one of each type, each with at least one value.
func (p *PKCS10) readAttributes(set cryptobyte.String) error {
	var previous cryptobyte.String
	for !set.Empty() {
		var content cryptobyte.String
		var a attribute
		sequence := set.PeekASN1Tag(cryptobyteasn1.SEQUENCE) // anything else is malformed, in order or not
		element, ordered := next(&set, &previous)
		switch {
		case len(p.attributes) == maxAttributes:
			return &Error{Check: checkRequestAttributes, Got: "over " + strconv.Itoa(maxAttributes) + " attributes", Want: "at most " + strconv.Itoa(maxAttributes)}
		case sequence && !ordered:
			return attributesViolation("attributes out of order")
		case !sequence || !element.ReadASN1(&content, cryptobyteasn1.SEQUENCE) || !oid.Read(&content, &a.id) ||
			!content.ReadASN1(&a.values, cryptobyteasn1.SET) || !content.Empty() || !isSetOfAny(a.values):
			return attributesViolation("a malformed attribute")
		case slices.ContainsFunc(p.attributes, func(other attribute) bool { return other.id == a.id }):
			return attributesViolation("two attributes " + a.id.String())
		}
		p.attributes = append(p.attributes, a)
		if a.id != oid.ExtensionRequest {
			p.OtherAttributes = append(p.OtherAttributes, a.id)
		} else if err := p.readExtensions(a.values); err != nil {
			return err
		}
	}
	return nil
}

func attributesViolation(got string) error {
	return &Error{Check: checkRequestAttributes, Got: got, Want: "a canonical set of attributes"}
}

// isSetOfAny reports whether set holds at least one value, in DER order.
func isSetOfAny(set cryptobyte.String) bool {
	var previous cryptobyte.String
	for !set.Empty() {
		if _, ordered := next(&set, &previous); !ordered {
			return false
		}
	}
	return len(previous) > 0
}

// readExtensions reads the values of an extensionRequest attribute (RFC 2985, 5.4.2): one
// list of extensions (RFC 5280, 4.1.2.9), not empty, one of each kind. crypto/x509 reads
// them too, but accepts an explicit critical FALSE, and anything after the names of a
// subjectAltName.
func (p *PKCS10) readExtensions(values cryptobyte.String) error {
	var list cryptobyte.String
	if !values.ReadASN1(&list, cryptobyteasn1.SEQUENCE) || !values.Empty() || list.Empty() {
		return attributesViolation("not one list of extensions")
	}
	var few [8]oid.OID
	for seen := few[:0]; !list.Empty(); {
		var extension, value cryptobyte.String
		var id oid.OID
		var critical bool
		switch {
		case len(seen) == maxExtensions:
			return &Error{Check: checkRequestExtensions, Got: "over " + strconv.Itoa(maxExtensions) + " extensions", Want: "at most " + strconv.Itoa(maxExtensions)}
		case !list.ReadASN1(&extension, cryptobyteasn1.SEQUENCE) || !oid.Read(&extension, &id):
			return extensionViolation("a malformed extension")
		case extension.PeekASN1Tag(cryptobyteasn1.BOOLEAN) && (!extension.ReadASN1Boolean(&critical) || !critical):
			return extensionViolation("extension " + id.String() + " with a critical flag that is not DER TRUE")
		case !extension.ReadASN1(&value, cryptobyteasn1.OCTET_STRING) || !extension.Empty():
			return extensionViolation("a malformed extension " + id.String())
		case slices.Contains(seen, id):
			return extensionViolation("two extensions " + id.String())
		case id == oid.SubjectAltName && !p.sans.read(value, critical):
			return extensionViolation("a subjectAltName that is not one list of names")
		}
		seen = append(seen, id)
	}
	return nil
}

// The two kinds of GeneralName (RFC 5280, 4.2.1.6) that a serving certificate has.
var (
	tagDNSName   = cryptobyteasn1.Tag(2).ContextSpecific()
	tagIPAddress = cryptobyteasn1.Tag(7).ContextSpecific()
)

// read finds the kinds of names in the value of a subjectAltName: one SEQUENCE of whole
// elements and nothing after it, as GeneralNames (RFC 5280, 4.2.1.6) are. crypto/x509 reads
// the names of the kinds that it knows, and ignores the others.
func (s *sans) read(value cryptobyte.String, critical bool) bool {
	var names, name cryptobyte.String
	var tag cryptobyteasn1.Tag
	s.critical = critical
	s.present = value.ReadASN1(&names, cryptobyteasn1.SEQUENCE) && value.Empty()
	for s.present && !names.Empty() {
		s.present = names.ReadAnyASN1(&name, &tag)
		if tag != tagDNSName && tag != tagIPAddress && len(s.other) < maxReports {
			s.other = append(s.other, tag)
		}
	}
	return s.present
}

func extensionViolation(got string) error {
	return &Error{Check: checkRequestExtensions, Got: got, Want: "canonical extensions, one of a kind"}
}

// flagTrue is DER BOOLEAN TRUE. It is never modified.
var flagTrue = []byte{1, 1, 0xff}

// flagExtension makes the extension that says that a request has TPM evidence (the 2018 TPM
// bootstrapping design, "CSR creation"): DER BOOLEAN TRUE, not critical. The design never
// registered an identifier, so the caller gives one. It must be valid, its arcs must fit in
// 31 bits (or crypto/x509 refuses the whole request), and it must not be that of another
// extension: below 2.5.29 or 1.3.6.1.5.5.7.1, or the provider ID's. The error is a [*Error]
// with "flag".
//
// The flag is a hint for people and for routing. Nothing may be decided on it alone: a
// requester can set it or omit it at will.
func flagExtension(id asn1.ObjectIdentifier) (pkix.Extension, error) {
	if !isFlagIdentifier(id) {
		return pkix.Extension{}, &Error{Check: checkFlag, Got: "identifier " + id.String(), Want: "an object identifier with arcs of at most 31 bits"}
	}
	if isKnownExtension(id) {
		return pkix.Extension{}, &Error{Check: checkFlag, Got: "identifier " + id.String() + " of another extension", Want: "an identifier of its own"}
	}
	return pkix.Extension{Id: append(asn1.ObjectIdentifier(nil), id...), Value: bytes.Clone(flagTrue)}, nil
}

// isFlagIdentifier reports whether encoding/asn1 can read id.
func isFlagIdentifier(id asn1.ObjectIdentifier) bool {
	o, _ := oid.FromASN1(id) // if it fails, o is empty, which is not an identifier
	_, ok := o.ASN1()
	return ok
}

// isKnownExtension reports whether id names an extension that means something else: one
// of X.509 (RFC 5280, 4.2) or the provider ID.
func isKnownExtension(id asn1.ObjectIdentifier) bool {
	below := func(arc ...int) bool { return len(id) >= len(arc) && id[:len(arc)].Equal(arc) }
	return below(2, 5, 29) || below(1, 3, 6, 1, 5, 5, 7, 1) || oid.KubernetesNodeProviderIdentifier.Equal(id)
}
