package tpmlab

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
)

// CA signs certificates.
type CA struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Time is when the certificates of this package are valid, for a day on each side.
var Time = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// Sign issues a certificate; edit may change the template. A nil parent is a
// root.
func Sign(t testing.TB, parent *CA, name string, edit func(*x509.Certificate)) *CA {
	t.Helper()
	key := NewP256(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    Time.Add(-24 * time.Hour), NotAfter: Time.Add(24 * time.Hour),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if edit != nil {
		edit(template)
	}
	if parent == nil {
		parent = &CA{template, key}
	}
	return &CA{Issued(t, template, parent, key.Public()), key}
}

// CertificateOf makes a certificate with an extension of some bytes.
func CertificateOf(t testing.TB, extra int) []byte {
	t.Helper()
	return Sign(t, nil, "node", func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: bytes.Repeat([]byte{5}, extra)}}
	}).Cert.Raw
}

// Issued is a certificate from a template.
func Issued(t testing.TB, template *x509.Certificate, parent *CA, pub crypto.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Cert, pub, parent.Key)
	testkit.NoError(t, err)
	return Parsed(t, der)
}

// EKCertificate is an EK certificate to the letter of the TCG's profile; edit spoils it.
func EKCertificate(t testing.TB, ca *CA, pub crypto.PublicKey, edit func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(77),
		NotBefore:    Time.Add(-24 * time.Hour), NotAfter: Time.Add(24 * time.Hour),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageKeyAgreement,
		UnknownExtKeyUsage: []asn1.ObjectIdentifier{{2, 23, 133, 8, 1}},
		ExtraExtensions:    []pkix.Extension{EKDirectory("id:49465800", "SLB9670", "id:00070055"), Specification("2.0", 0, 138)},
	}
	if _, ok := pub.(*rsa.PublicKey); ok {
		template.KeyUsage = x509.KeyUsageKeyEncipherment
	}
	if edit != nil {
		edit(template)
	}
	return Issued(t, template, ca, pub)
}

// Specification is a subjectDirectoryAttributes extension.
func Specification(family string, level, revision int64) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 9}, Value: Seq(Seq(identifier(oid.TCGAtTPMSpecification),
		Element(cbasn1.SET, Seq(text(family), value(level), value(revision)))))}
}

// EKDirectory is the critical subjectAltName of an EK certificate.
func EKDirectory(manufacturer, model, version string) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true,
		Value: Seq(DirectoryName([]Attribute{{ID: oid.TCGAtTPMManufacturer, Value: manufacturer}},
			[]Attribute{{ID: oid.TCGAtTPMModel, Value: model}}, []Attribute{{ID: oid.TCGAtTPMVersion, Value: version}}))}
}

// An Attribute is one of a name.
type Attribute struct {
	ID    oid.OID
	Value string
}

// DirectoryName encodes a directoryName of one RDN a group.
func DirectoryName(rdns ...[]Attribute) []byte {
	var name [][]byte
	for _, rdn := range rdns {
		var set []byte
		for _, a := range rdn {
			set = append(set, Seq(identifier(a.ID), text(a.Value))...)
		}
		name = append(name, Element(cbasn1.SET, set))
	}
	return Element(0xa4, Seq(name...))
}

// CertsOnly is a message of PKCS#7 that only carries certificates (RFC 5280, 4.2.2.1).
func CertsOnly(certificates ...[]byte) []byte {
	version, none := value(1), Element(cbasn1.SET, nil)
	signed := Seq(version, none, Seq(value(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1})), Element(0xa0, bytes.Join(certificates, nil)), none)
	return Seq(value(asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}), Element(0xa0, signed))
}

// Seq is a SEQUENCE.
func Seq(elements ...[]byte) []byte { return Element(cbasn1.SEQUENCE, bytes.Join(elements, nil)) }

// Octets is an OCTET STRING.
func Octets(v []byte) []byte { return Element(cbasn1.OCTET_STRING, v) }

// Element is one element in DER.
func Element(tag cbasn1.Tag, content []byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(tag, func(b *cryptobyte.Builder) { b.AddBytes(content) })
	return b.BytesOrPanic()
}

func bitString(content []byte) []byte {
	return Element(cbasn1.BIT_STRING, append([]byte{0}, content...))
}

func text(s string) []byte { return Element(cbasn1.UTF8String, []byte(s)) }

func identifier(id oid.OID) []byte { return Element(cbasn1.OBJECT_IDENTIFIER, []byte(id)) }

// value is the DER of what encoding/asn1 knows.
func value(v any) []byte { return testkit.Must(asn1.Marshal(v)) }

// spkiOf is a key's SubjectPublicKeyInfo.
func spkiOf(key crypto.PublicKey) []byte { return testkit.Must(x509.MarshalPKIXPublicKey(key)) }
