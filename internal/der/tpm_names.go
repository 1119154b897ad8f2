package der

import (
	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// TPMNames holds the subjectAltName of a TPM's certificate: otherNames, and the TPM's
// manufacturer, model and version unless they are empty.
type TPMNames struct {
	Others                       []OtherName
	Manufacturer, Model, Version string
}

// OtherName is one otherName: its type and one DER element.
type OtherName struct {
	Type  oid.OID
	Value []byte
}

// Marshal returns the value of the extension (RFC 5280, section 4.2.1.6; TCG EK Credential
// Profile 2.6, section 3.2.9): the directory name has one RDN for each attribute, a
// UTF8String.
func (n *TPMNames) Marshal() ([]byte, error) {
	otherTag, directoryTag := asn1.Tag(0).ContextSpecific().Constructed(), asn1.Tag(4).ContextSpecific().Constructed()
	var b cryptobyte.Builder
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		for _, o := range n.Others {
			b.AddASN1(otherTag, func(b *cryptobyte.Builder) {
				oid.Add(b, o.Type)
				AddTagged(b, otherTag, o.Value)
			})
		}
		if n.Manufacturer+n.Model+n.Version == "" {
			return
		}
		// Name is a CHOICE, so the implicit tag of directoryName becomes explicit.
		b.AddASN1(directoryTag, func(b *cryptobyte.Builder) {
			b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
				addAttribute(b, oid.TCGAtTPMManufacturer, n.Manufacturer)
				addAttribute(b, oid.TCGAtTPMModel, n.Model)
				addAttribute(b, oid.TCGAtTPMVersion, n.Version)
			})
		})
	})
	return b.Bytes()
}

// addAttribute adds an RDN with one attribute, a UTF8String.
func addAttribute(b *cryptobyte.Builder, o oid.OID, value string) {
	b.AddASN1(asn1.SET, func(b *cryptobyte.Builder) {
		b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, o)
			AddText(b, value)
		})
	})
}
