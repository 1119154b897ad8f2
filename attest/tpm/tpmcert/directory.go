package tpmcert

import (
	"cmp"
	"crypto/x509"
	"slices"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/dn"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// DirectoryName is the TPM's model in the directoryName of a TCG certificate's subjectAltName (TCG
// EK Credential Profile 2.6, section 3.2.9). It names a model, never a machine.
type DirectoryName struct {
	// Manufacturer is the value of tcg-at-tpmManufacturer as written, for example
	// "id:494E5443": always "id:" and 8 hexadecimal digits, in either case.
	Manufacturer string
	// Vendor is the four bytes after "id:" as text in upper case, without trailing NUL bytes
	// and spaces, for example "INTC"; empty if they are not printable ASCII.
	Vendor string
	// Model is tcg-at-tpmModel and Version is tcg-at-tpmVersion, as written.
	Model, Version string
}

// whole reports whether manufacturer, model and version are all present.
func (d DirectoryName) whole() bool { return d.Manufacturer != "" && d.Model != "" && d.Version != "" }

// check requires a whole name where a profile does.
func (d DirectoryName) check(required bool, profile string) error {
	if !required || d.whole() {
		return nil
	}
	return checkSubjectAltName.Refuse("no whole TCG directory name", "manufacturer, model and version, by profile "+profile)
}

// subjectAltName has the fields of the extension that this package reads.
type subjectAltName struct {
	directory  DirectoryName
	stated     [3]bool // which directoryAttributes are present
	otherNames []der.OtherName
	// modules are the HardwareModuleNames among otherNames, or in a directory name; nil is one
	// that is no SEQUENCE.
	modules, inDirectory []cryptobyte.String
	// foreign says that there is a name form that neither this package nor crypto/x509
	// understands.
	foreign bool
}

// Tags of GeneralName (RFC 5280, section 4.2.1.6).
const (
	tagOtherName     asn1.Tag = 0xa0
	tagRFC822Name    asn1.Tag = 0x81
	tagDNSName       asn1.Tag = 0x82
	tagDirectoryName asn1.Tag = 0xa4
	tagURI           asn1.Tag = 0x86
	tagIPAddress     asn1.Tag = 0x87
)

// checkSubjectAltName: the subjectAltName of a certificate is not DER, is critical and holds
// a name form that is not understood, or states a directory attribute twice.
const checkSubjectAltName refusal.Check = "certificate-subject-alt-name"

func sanFault(want string) error {
	return checkSubjectAltName.Refuse("a bad subjectAltName", want)
}

// parseSubjectAltName parses the extension, if there is one.
func parseSubjectAltName(cert *x509.Certificate) (*subjectAltName, error) {
	san := &subjectAltName{}
	e := extension(cmp.Or(cert, new(x509.Certificate)), oid.SubjectAltName)
	if e == nil {
		return san, nil
	}
	in, names := cryptobyte.String(e.Value), cryptobyte.String(nil)
	if !in.ReadASN1(&names, asn1.SEQUENCE) || !in.Empty() || names.Empty() {
		return nil, sanFault("a SEQUENCE OF GeneralName")
	}
	for !names.Empty() {
		if err := san.readName(&names); err != nil {
			return nil, err
		}
	}
	if e.Critical && san.foreign {
		return nil, sanFault("only name forms that are understood, as it is critical")
	}
	return san, nil
}

func (san *subjectAltName) readName(names *cryptobyte.String) error {
	var v cryptobyte.String
	var tag asn1.Tag
	if !names.ReadAnyASN1(&v, &tag) {
		return sanFault("DER")
	}
	switch tag {
	case tagOtherName:
		var n der.OtherName
		var value, content cryptobyte.String
		if !oid.Read(&v, &n.Type) || !v.ReadASN1(&value, tagOtherName) || !v.Empty() {
			return sanFault("OtherName { type-id, [0] EXPLICIT value }")
		}
		n.Value = value
		var inner asn1.Tag
		if !value.ReadAnyASN1(&content, &inner) || !value.Empty() {
			return sanFault("one DER value in an OtherName")
		}
		san.otherNames = append(san.otherNames, n)
		if inner != asn1.SEQUENCE {
			content = nil
		}
		if n.Type == oid.HardwareModuleName {
			san.modules = append(san.modules, content)
		}
	case tagDirectoryName:
		var rdns cryptobyte.String
		if !v.ReadASN1(&rdns, asn1.SEQUENCE) || !v.Empty() {
			return sanFault("Name in a directoryName")
		}
		return san.readDirectory(rdns)
	case tagRFC822Name, tagDNSName, tagURI, tagIPAddress:
	default:
		san.foreign = true
	}
	return nil
}

// readDirectory reads the TCG attributes of a Name. Real certificates write them
// as three RDNs or as one RDN of three attributes.
func (san *subjectAltName) readDirectory(rdns cryptobyte.String) error {
	for !rdns.Empty() {
		var rdn cryptobyte.String
		if !rdns.ReadASN1(&rdn, asn1.SET) {
			return sanFault("RelativeDistinguishedName")
		}
		for !rdn.Empty() {
			var attribute, value cryptobyte.String
			var id oid.OID
			var tag asn1.Tag
			if !rdn.ReadASN1(&attribute, asn1.SEQUENCE) || !oid.Read(&attribute, &id) ||
				!attribute.ReadAnyASN1(&value, &tag) || !attribute.Empty() {
				return sanFault("AttributeTypeAndValue")
			}
			if err := san.setAttribute(id, tag, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// setAttribute records a TCG attribute, whatever string type its value has; a value that is
// not a string is refused.
func (san *subjectAltName) setAttribute(id oid.OID, tag asn1.Tag, value []byte) error {
	n := slices.Index(directoryAttributes[:], id)
	switch {
	case id == oid.HardwareModuleName && tag == asn1.SEQUENCE:
		san.inDirectory = append(san.inDirectory, value)
		return nil
	case n < 0:
		return nil
	case san.stated[n]:
		return sanFault("each TCG attribute once")
	}
	text, ok := dn.Text(tag, value)
	if !ok {
		return sanFault("a TCG attribute of a string type")
	}
	d := &san.directory
	fields := [...]*string{&d.Manufacturer, &d.Model, &d.Version}
	*fields[n], san.stated[n] = text, true
	vendor, ok := vendorIDOf(d.Manufacturer)
	if san.stated[0] && !ok {
		return sanFault("a manufacturer of id: and 8 hexadecimal digits")
	}
	d.Vendor = vendor.text()
	return nil
}

// directoryAttributes are manufacturer, model and version.
var directoryAttributes = [...]oid.OID{oid.TCGAtTPMManufacturer, oid.TCGAtTPMModel, oid.TCGAtTPMVersion}
