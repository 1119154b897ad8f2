package csr

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/refusal"
)

// The last look at a new certificate finds every difference from the template.
func TestCheckIssued(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	certificate := func() *x509.Certificate {
		return &x509.Certificate{
			Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"},
				Names: []pkix.AttributeTypeAndValue{{}, {}}},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			NotBefore: at, NotAfter: at.Add(time.Hour), RawSubjectPublicKeyInfo: []byte("key"),
			DNSNames: []string{"a"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)},
			Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 15}}},
		}
	}
	checked := &Checked{pkcs10: &PKCS10{CSR: &x509.CertificateRequest{RawSubjectPublicKeyInfo: []byte("key")}}}
	if err := checkIssued(certificate(), certificate(), checked); err != nil {
		t.Fatal(err)
	}
	for row, c := range []struct {
		fault  string
		change func(*x509.Certificate)
	}{
		{"subject", func(c *x509.Certificate) { c.Subject.CommonName = "system:node:b" }},
		{"subject", func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }},
		{"subject", func(c *x509.Certificate) { c.Subject.Names = append(c.Subject.Names, pkix.AttributeTypeAndValue{}) }},
		{"usages", func(c *x509.Certificate) { c.IsCA = true }},
		{"usages", func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }},
		{"usages", func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) }},
		{"usages", func(c *x509.Certificate) { c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 2, 3}} }},
		{"validity", func(c *x509.Certificate) { c.NotBefore = at.Add(-time.Second) }},
		{"validity", func(c *x509.Certificate) { c.NotAfter = c.NotAfter.Add(time.Second) }},
		{"public key", func(c *x509.Certificate) { c.RawSubjectPublicKeyInfo = []byte("KEY") }},
		{"SANs", func(c *x509.Certificate) { c.DNSNames = append(c.DNSNames, "b") }},
		{"SANs", func(c *x509.Certificate) { c.IPAddresses[0] = net.IPv4(192, 0, 2, 2) }},
		{"SANs", func(c *x509.Certificate) { c.EmailAddresses = []string{"a@b"} }},
		{"SANs", func(c *x509.Certificate) { c.URIs = []*url.URL{{}} }},
		{"extension 2.5.29.30", func(c *x509.Certificate) { c.Extensions[0].Id = asn1.ObjectIdentifier{2, 5, 29, 30} }},
	} {
		t.Run(fmt.Sprint(row), func(t *testing.T) {
			got := certificate()
			c.change(got)
			if err := checkIssued(got, certificate(), checked); err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v", c.fault, err)
			}
		})
	}
}

func TestKeyIdentifierRefusesMalformedKeys(t *testing.T) {
	for _, spki := range []string{"", "\x30\x00", "\x30\x02\x30\x00", "\x30\x05\x30\x00\x03\x01\x01"} {
		if id, err := der.KeyIdentifier([]byte(spki)); err == nil {
			t.Errorf("%x: %x", spki, id)
		}
	}
}

func TestQuotedIsShortAndPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"a":                                    `"a"`,
		"a\n\x00\u202e":                        `"a\n\x00\u202e"`,
		strings.Repeat("x", 80):                `"` + strings.Repeat("x", 80) + `"`,
		strings.Repeat("x", 81):                `"` + strings.Repeat("x", 80) + `"... (81 bytes)`,
		strings.Repeat("x", 79) + "ä":          `"` + strings.Repeat("x", 79) + `"... (81 bytes)`,
		strings.Repeat("\xff", 100000):         `"` + strings.Repeat(`\xff`, 80) + `"... (100000 bytes)`,
		strings.Repeat("\x80", 1000):           `"` + strings.Repeat(`\x80`, 76) + `"... (1000 bytes)`,
		strings.Repeat("x", 78) + "\U0001f600": `"` + strings.Repeat("x", 78) + `"... (82 bytes)`,
	} {
		t.Run(s, func(t *testing.T) {
			if got := refusal.Quote(s); got != want {
				t.Errorf("refusal.Quote(%.20q...) = %s, want %s", s, got, want)
			}
		})
	}
}
