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

	"github.com/nodeattest/nodeattest/internal/der"
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
	issuerCert, signer := template, crypto.Signer(key)
	if parent != nil {
		issuerCert, signer = parent.Cert, parent.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuerCert, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{cert, key}
}

// CertificateOf makes a certificate with an extension of some bytes.
func CertificateOf(t testing.TB, extra int) []byte {
	t.Helper()
	key := NewP256(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 999, 1}, Value: bytes.Repeat([]byte{5}, extra)}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Issued is a certificate from a template.
func Issued(t testing.TB, template *x509.Certificate, parent *CA, pub crypto.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent.Cert, pub, parent.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
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
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			oid.Add(b, oid.TCGAtTPMSpecification)
			b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
				b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
					der.AddText(b, family)
					b.AddASN1Int64(level)
					b.AddASN1Int64(revision)
				})
			})
		})
	})
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 9}, Value: b.BytesOrPanic()}
}

// EKDirectory is the critical subjectAltName of an EK certificate.
func EKDirectory(manufacturer, model, version string) pkix.Extension {
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Critical: true,
		Value: SAN(DirectoryName([]Attribute{{ID: oid.TCGAtTPMManufacturer, Value: manufacturer}},
			[]Attribute{{ID: oid.TCGAtTPMModel, Value: model}}, []Attribute{{ID: oid.TCGAtTPMVersion, Value: version}}))}
}

// SAN wraps GeneralNames.
func SAN(names ...[]byte) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		for _, n := range names {
			b.AddBytes(n)
		}
	})
	return b.BytesOrPanic()
}

// An Attribute is one of a name.
type Attribute struct {
	ID    oid.OID
	Value string
}

// DirectoryName encodes a directoryName of one RDN a group.
func DirectoryName(rdns ...[]Attribute) []byte {
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.Tag(0xa4), func(b *cryptobyte.Builder) {
		b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
			for _, rdn := range rdns {
				b.AddASN1(cbasn1.SET, func(b *cryptobyte.Builder) {
					for _, a := range rdn {
						b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
							oid.Add(b, a.ID)
							der.AddText(b, a.Value)
						})
					}
				})
			}
		})
	})
	return b.BytesOrPanic()
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
