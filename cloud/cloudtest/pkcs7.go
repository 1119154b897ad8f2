package cloudtest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// Contents octets of the object identifiers of PKCS #7 (RFC 2315, RFC 5652).
const (
	oidData          = "\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01"
	oidSignedData    = "\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"
	oidRSA           = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01"
	oidSHA256WithRSA = "\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b"
	oidContentType   = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x03"
	oidMessageDigest = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x04"
	oidSigningTime   = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x05"
	// CMSAlgorithmProtection (RFC 6211).
	oidAlgorithmProtection = "\x2a\x86\x48\x86\xf7\x0d\x01\x09\x34"
	oidSHA256              = "\x60\x86\x48\x01\x65\x03\x04\x02\x01"
)

var explicit0 = asn1.Tag(0).ContextSpecific().Constructed()

func addOID(b *cryptobyte.Builder, contents string) {
	b.AddASN1(asn1.OBJECT_IDENTIFIER, func(b *cryptobyte.Builder) { b.AddBytes([]byte(contents)) })
}

// addAlgorithm adds an AlgorithmIdentifier with NULL parameters.
func addAlgorithm(b *cryptobyte.Builder, contents string) {
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		addOID(b, contents)
		b.AddASN1(asn1.NULL, func(*cryptobyte.Builder) {})
	})
}

// addSerial adds an IssuerAndSerialNumber.
func addSerial(b *cryptobyte.Builder, c *x509.Certificate) {
	b.AddASN1(asn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(c.RawIssuer)
		b.AddASN1BigInt(c.SerialNumber)
	})
}

// authority is a certificate and its key.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// issueRSA makes a certificate with an RSA-2048 key, self-signed if issuer is nil. It is valid
// for the given time before and after now.
func issueRSA(issuer *authority, template x509.Certificate, now time.Time, around time.Duration) (*authority, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = now.Add(-around), now.Add(around)
	return issue(issuer, &template, key)
}

// issue makes a certificate for a key, self-signed if issuer is nil.
func issue(issuer *authority, template *x509.Certificate, key crypto.Signer) (*authority, error) {
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63)); err != nil {
		return nil, err
	}
	template.BasicConstraintsValid = true
	if issuer == nil {
		issuer = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{cert, key}, err
}

func named(organization, name string) pkix.Name {
	n := pkix.Name{Country: []string{"US"}, CommonName: name}
	if organization != "" {
		n.Organization = []string{organization}
	}
	return n
}
