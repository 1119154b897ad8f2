package inspect

import (
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"reflect"
	"strings"

	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// A form is a structure that one of the module's parsers reads.
type form struct {
	name  string
	parse func([]byte) (any, error)
}

func parser[T any](name string, parse func([]byte) (T, error)) form {
	return form{name, func(b []byte) (any, error) { return parse(b) }}
}

// forms are the known structures. Their parsers are strict, so at most one accepts an input.
func forms() []form {
	return []form{
		parser("Certificate", x509.ParseCertificate),
		parser("CertificationRequest", csr.ParseForeignPKCS10),
		parser("SubjectPublicKeyInfo", x509.ParsePKIXPublicKey),
		parser("TcgAttestCertify", statement.ParseTCGAttestCertify),
		parser("TcgAttestQuote", statement.ParseTCGAttestQuote),
		parser("Quote", statement.ParseQuote),
		parser("DocumentHello", document.ParseHello),
		parser("TPMS_ATTEST", statement.ParseAttestation),
		parser("TPMT_PUBLIC", statement.ParsePublic),
		parser("TPMT_SIGNATURE", statement.ParseSignature),
	}
}

// binary shows DER or a structure of a TPM. tpm2-tools write some of the latter with their
// size in front, that is, as a TPM2B.
func (t *tree) binary(b []byte) {
	if len(b) > 2 && int(b[0])<<8|int(b[1]) == len(b)-2 && recognize(b) == "" && recognize(b[2:]) != "" {
		t.line("size prefix", "2 bytes, a TPM2B: requests carry the structure without it")
		b = b[2:]
	}
	name := recognize(b)
	switch {
	case name != "":
		t.in(name, "", func() { t.structure(name, b) })
	case len(b) > 0 && b[0] == sequence:
		t.in("DER", "", func() { t.outline(b, 0, private) })
	default:
		t.fault(fmt.Sprintf("unknown form: %s, the first %x", sizeOf(len(b)), b[:min(2, len(b))]))
	}
}

// recognize names the structure that b is; "" if no parser reads it.
func recognize(b []byte) string {
	for _, f := range forms() {
		if _, err := f.parse(b); err == nil {
			return f.name
		}
	}
	return ""
}

// structure shows a structure of a given name, or why it is refused.
func (t *tree) structure(name string, b []byte) {
	switch name {
	case "Certificate":
		t.certificate(b)
		return
	case "CertificationRequest":
		t.request(b)
		return
	}
	for _, f := range forms() {
		if f.name != name {
			continue
		}
		v, err := f.parse(b)
		if err != nil {
			t.refuse(b, err)
			return
		}
		if name == "SubjectPublicKeyInfo" {
			t.key(v, b)
			return
		}
		t.fields(reflect.ValueOf(v).Elem())
		if p, ok := v.(*statement.Public); ok {
			t.line("Name, computed", refusal.Hex(p.Name()))
			if key, err := p.Key(); err == nil {
				t.key(key, nil)
			}
		}
	}
}

// refuse says why a parser refused b, and outlines it if it is DER.
func (t *tree) refuse(b []byte, err error) {
	t.fault("refused: " + err.Error())
	if len(b) > 0 && b[0] == sequence {
		t.in("DER", "", func() { t.outline(b, 0, private) })
	}
}

// Whether an outline shows everything, or neither octets nor a challengePassword.
const (
	public  = true
	private = false
)

// sequence is the first byte of most DER.
const sequence = 0x30

// maxDepth limits the nesting of DER.
const maxDepth = 32

// outline lists the elements of DER, which begins at the given byte of the input, up to the
// first fault. Elements that hold a known structure are shown as such.
func (t *tree) outline(b []byte, at int, shown bool) {
	password := false
	for len(b) > 0 && t.lines < maxLines {
		var e asn1.RawValue
		rest, err := asn1.Unmarshal(b, &e)
		if err != nil || t.depth > maxDepth {
			t.fault(fmt.Sprintf("byte %d: not DER from here on", at))
			return
		}
		label := fmt.Sprintf("byte %d, %s", at, tagName(&e))
		switch {
		case password:
			t.line(label, sizeOf(len(e.Bytes))+", not shown")
		case at > 0 && t.known(label, e.FullBytes), at > 0 && t.known(label, e.Bytes):
		case e.IsCompound:
			t.in(label, sizeOf(len(e.Bytes)), func() { t.outline(e.Bytes, at+len(e.FullBytes)-len(e.Bytes), shown) })
		default:
			t.line(label, valueOf(&e, shown))
			password = oid.OID(e.Bytes) == oid.ChallengePassword
		}
		b, at = rest, at+len(e.FullBytes)
	}
}

// known shows b if it is a known structure.
func (t *tree) known(label string, b []byte) bool {
	name := recognize(b)
	if name != "" {
		t.in(label, name, func() { t.structure(name, b) })
	}
	return name != ""
}

// valueOf returns the value of an element as text.
func valueOf(e *asn1.RawValue, shown bool) string {
	var number int64
	universal := e.Class == asn1.ClassUniversal
	switch {
	case universal && e.Tag == asn1.TagOID:
		return nameOf(oid.OID(e.Bytes))
	case universal && e.Tag == asn1.TagInteger && len(e.Bytes) <= 8:
		if _, err := asn1.Unmarshal(e.FullBytes, &number); err == nil {
			return fmt.Sprint(number)
		}
	case universal && (e.Tag == asn1.TagUTF8String || e.Tag == asn1.TagPrintableString || e.Tag == asn1.TagIA5String),
		shown && len(e.Bytes) > 0 && printable(e.Bytes):
		return quoted(string(e.Bytes))
	case shown:
		return refusal.Hex(e.Bytes)
	}
	return sizeOf(len(e.Bytes))
}

func tagName(e *asn1.RawValue) string {
	name := map[int]string{
		asn1.TagBoolean: "BOOLEAN", asn1.TagInteger: "INTEGER", asn1.TagBitString: "BIT STRING", asn1.TagOctetString: "OCTET STRING",
		asn1.TagOID: "OBJECT IDENTIFIER", asn1.TagEnum: "ENUMERATED", asn1.TagUTF8String: "UTF8String",
		asn1.TagPrintableString: "PrintableString", asn1.TagIA5String: "IA5String", asn1.TagSequence: "SEQUENCE", asn1.TagSet: "SET",
	}[e.Tag]
	if name == "" || e.Class != asn1.ClassUniversal {
		return fmt.Sprintf("tag 0x%02x", e.FullBytes[0])
	}
	return name
}

// nameOf returns an identifier's name and its number.
func nameOf(id oid.OID) string {
	if name := id.Name(); name != "" {
		return strings.TrimPrefix(name, "id-at-") + " (" + id.String() + ")"
	}
	return id.String()
}
