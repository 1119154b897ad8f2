package csr

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cryptobyteasn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
)

// template is the certificate to be, without its signature.
func (ca *CA) template(c *Checked, v *Verified, now time.Time) (*x509.Certificate, error) {
	commonName, organization := SubjectNames(c.purpose, c.nodeName)
	keyID, err := keyIdentifier(c.pkcs10.CSR.RawSubjectPublicKeyInfo)
	if err != nil || commonName == "" {
		return nil, Errors{{Check: CheckNotChecked, Got: "a request that no policy has checked", Err: err}}
	}
	t := &x509.Certificate{
		SerialNumber:          serialNumber(),
		Subject:               pkix.Name{CommonName: commonName, Organization: []string{organization}},
		NotBefore:             now.Add(-Backdate).UTC().Truncate(time.Second),
		NotAfter:              ca.end(c, v, now),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		SubjectKeyId:          keyID,
	}
	if !t.NotAfter.After(now) {
		return nil, Retry(fmt.Errorf("the certificate would end at %s, before it is used", t.NotAfter.Format(time.RFC3339)))
	}
	if c.keyEncipherment {
		t.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	if c.purpose == PurposeServing {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		t.DNSNames = distinct(c.dnsNames)
		for _, address := range distinct(c.ipAddresses) {
			t.IPAddresses = append(t.IPAddresses, net.IP(address.AsSlice()))
		}
	}
	if v.ProviderID != "" {
		extension, err := oid.ProviderIDExtension(v.ProviderID)
		if err != nil {
			return nil, fmt.Errorf("csr: the provider ID that is vouched for: %w", err)
		}
		t.ExtraExtensions = []pkix.Extension{extension}
	}
	return t, nil
}

// end is the last second of the certificate's validity.
func (ca *CA) end(c *Checked, v *Verified, now time.Time) time.Time {
	lifetime := ca.maxLifetime(c.purpose)
	if c.lifetime != 0 {
		lifetime = min(lifetime, c.lifetime)
	}
	end := now.Add(lifetime)
	if ca.notAfter.Before(end) {
		end = ca.notAfter
	}
	if !v.NotAfter.IsZero() && v.NotAfter.Before(end) {
		end = v.NotAfter
	}
	return end.UTC().Truncate(time.Second)
}

// distinct keeps the first of several equal values.
func distinct[T string | netip.Addr](values []T) []T {
	kept := make([]T, 0, len(values))
	for _, v := range values {
		if !slices.Contains(kept, v) {
			kept = append(kept, v)
		}
	}
	return kept
}

// keyIdentifier names a public key by the first 160 bits of the SHA-256 of its BIT
// STRING's content (RFC 7093, 2, method 1).
func keyIdentifier(spki []byte) ([]byte, error) {
	input := cryptobyte.String(spki)
	var content, algorithm cryptobyte.String
	var key []byte
	if !input.ReadASN1(&content, cryptobyteasn1.SEQUENCE) ||
		!content.ReadASN1Element(&algorithm, cryptobyteasn1.SEQUENCE) ||
		!content.ReadASN1BitStringAsBytes(&key) {
		return nil, errors.New("a malformed SubjectPublicKeyInfo")
	}
	digest := sha256.Sum256(key)
	return digest[:20], nil
}

// allowedExtensions are those of an issued certificate.
var allowedExtensions = [...]oid.OID{oid.KeyUsage, oid.ExtendedKeyUsage, oid.BasicConstraints,
	oid.AuthorityKeyIdentifier, oid.SubjectKeyIdentifier, oid.SubjectAltName, oid.KubernetesNodeProviderIdentifier}

// checkIssued reads the new certificate as others will, and holds it against what it
// should say. It finds nothing unless crypto/x509 or this package is at fault.
func checkIssued(got, want *x509.Certificate, c *Checked) error {
	fault := ""
	switch {
	case got.Subject.CommonName != want.Subject.CommonName || !slices.Equal(got.Subject.Organization, want.Subject.Organization) || len(got.Subject.Names) != 2:
		fault = "subject " + got.Subject.String()
	case got.IsCA || got.KeyUsage != want.KeyUsage || !slices.Equal(got.ExtKeyUsage, want.ExtKeyUsage) || len(got.UnknownExtKeyUsage) != 0:
		fault = "usages"
	case !got.NotBefore.Equal(want.NotBefore) || !got.NotAfter.Equal(want.NotAfter):
		fault = "validity"
	case !bytes.Equal(got.RawSubjectPublicKeyInfo, c.pkcs10.CSR.RawSubjectPublicKeyInfo):
		fault = "public key"
	case !slices.Equal(got.DNSNames, want.DNSNames) || !slices.EqualFunc(got.IPAddresses, want.IPAddresses, net.IP.Equal) ||
		len(got.EmailAddresses)+len(got.URIs) != 0:
		fault = "SANs"
	}
	for i := range got.Extensions {
		id := got.Extensions[i].Id
		if !slices.ContainsFunc(allowedExtensions[:], func(o oid.OID) bool { return o.Equal(id) }) {
			fault = "extension " + id.String()
		}
	}
	if fault != "" {
		return fmt.Errorf("csr: the new certificate is not the one that was meant: %s", fault)
	}
	return nil
}
