package tpmsim

import (
	"cmp"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// CertificateOptions describes an AK's or EK's certificate. Zero fields follow the style.
// Not every possible combination is a good certificate: most fields are there for tests of
// what must be refused.
type CertificateOptions struct {
	// Style determines everything that the other fields do not. Zero means StyleTCG.
	Style Style

	// OtherName goes into the SAN in addition to the directory name, in styles that have
	// a SAN. nil means none.
	OtherName *OtherName

	// Instance is the machine that Google's styles name. nil means DefaultInstance.
	Instance *oid.GCEInstance

	// Device is the machine that StyleOEM names. nil means DefaultDevice.
	Device *Device

	// NotBefore and NotAfter bound the validity. Zero means one hour before and twenty
	// years after the CA's clock.
	NotBefore, NotAfter time.Time

	// KeyUsage replaces the style's. nil means the style's; a pointer to 0 means no key
	// usage.
	KeyUsage *x509.KeyUsage

	// ExtKeyUsage replaces the style's. nil means the style's; empty but not nil means none.
	ExtKeyUsage []oid.OID

	// NoSAN leaves the SAN out.
	NoSAN bool

	// IsCA makes the certificate a CA's: basicConstraints CA:TRUE. The key usage
	// stays as it is.
	IsCA bool

	// Extra holds extensions that are written after the others. crypto/x509 refuses a
	// certificate with a duplicate identifier, so one that the certificate already has is
	// an error here.
	Extra []pkix.Extension

	// Edit, if set, changes the template that is passed to x509.CreateCertificate, for
	// anything that has no field here. Extensions are in its ExtraExtensions.
	Edit func(*x509.Certificate)
}

// IssueAK issues a certificate for an AK, signed by the intermediate for AKs. The CA accepts
// any key without asking a TPM.
func (ca *CA) IssueAK(pub crypto.PublicKey, opts CertificateOptions) (*x509.Certificate, error) {
	return ca.issue(&ca.ak, pub, opts)
}

// IssueEK issues a certificate for an EK, signed by the intermediate for EKs: EKU
// 2.23.133.8.1, keyEncipherment for an RSA key and keyAgreement for an EC key,
// critical SAN with the directory name, TPM specification attribute (TCG EK
// Credential Profile 2.6, section 3.2), unless a style or an option says otherwise.
func (ca *CA) IssueEK(pub crypto.PublicKey, opts CertificateOptions) (*x509.Certificate, error) {
	return ca.issue(&ca.ek, pub, opts)
}

func (ca *CA) issue(by *issuer, pub crypto.PublicKey, opts CertificateOptions) (*x509.Certificate, error) {
	opts.Style = cmp.Or(opts.Style, StyleTCG)
	s, ok := styles[opts.Style]
	if !ok || opts.OtherName != nil && (!s.san || opts.NoSAN) || opts.Instance != nil && !s.instance || opts.Device != nil && !s.device {
		return nil, fmt.Errorf("tpmsim: %w: no certificate of %v has this OtherName, Instance or Device", refusal.CheckConfig, opts.Style)
	}
	now := ca.now()
	t := &x509.Certificate{
		NotBefore:             cmp.Or(opts.NotBefore, now.Add(-backdate)),
		NotAfter:              cmp.Or(opts.NotAfter, now.Add(leafLifetime)),
		KeyUsage:              s.akUsage,
		BasicConstraintsValid: true,
		IsCA:                  opts.IsCA,
	}
	eku := s.akEKU
	if by == &ca.ek {
		s.specification, eku, t.KeyUsage = s.san, s.ekEKU, x509.KeyUsageKeyAgreement
		if _, ok := pub.(*rsa.PublicKey); ok {
			t.KeyUsage = x509.KeyUsageKeyEncipherment
		}
	}
	t.KeyUsage = *cmp.Or(opts.KeyUsage, &t.KeyUsage)
	if opts.ExtKeyUsage == nil && eku != "" {
		opts.ExtKeyUsage = []oid.OID{eku}
	}
	for _, u := range opts.ExtKeyUsage {
		id, ok := u.ASN1()
		if !ok {
			return nil, fmt.Errorf("tpmsim: %w: crypto/x509 cannot hold the identifier %v", refusal.CheckConfig, u)
		}
		t.UnknownExtKeyUsage = append(t.UnknownExtKeyUsage, id)
	}
	if err := opts.addNames(t, &s); err != nil {
		return nil, fmt.Errorf("tpmsim: certificate: %w", err)
	}
	t.ExtraExtensions = append(t.ExtraExtensions, opts.Extra...)
	if opts.Edit != nil {
		opts.Edit(t)
	}
	return ca.sign(t, by, pub)
}

// addNames adds the subject and the extensions about the machine: TPM specification, SAN, instance
// identity.
func (o *CertificateOptions) addNames(t *x509.Certificate, s *style) error {
	instance := cmp.Or(o.Instance, DefaultInstance())
	if s.subject != nil {
		t.Subject = s.subject(instance)
	}
	// No manufacturer has this id. It is the directory name, which tells the model of a TPM and not
	// one TPM from another (TCG EK Credential Profile 2.6, section 3.2).
	names := der.TPMNames{Manufacturer: "id:53494D00", Model: "tpmsim", Version: "id:00010000"}
	if s.device {
		device := cmp.Or(o.Device, DefaultDevice())
		t.Subject = pkix.Name{Organization: []string{"tpmsim"}, CommonName: device.PartNumber, SerialNumber: device.SerialNumber}
		for _, policy := range []oid.OID{oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMRestricted} {
			id, _ := x509.ParseOID(policy.String()) // which never fails
			t.Policies = append(t.Policies, id)
		}
		names = der.TPMNames{Others: device.otherNames()}
	}
	if o.OtherName != nil {
		names.Others = append(names.Others, der.OtherName(*o.OtherName))
	}
	for _, e := range []struct {
		wanted   bool
		oid      oid.OID
		critical bool
		value    func() ([]byte, error)
	}{
		{s.specification, oid.SubjectDirectoryAttributes, false, func() ([]byte, error) { return []byte(tpmSpecification), nil }},
		{s.san && !o.NoSAN, oid.SubjectAltName, !s.device, names.Marshal}, // critical where the subject is empty
		{s.instance, oid.KubernetesNodeProviderIdentifier, false, instance.Marshal},
	} {
		if !e.wanted {
			continue
		}
		value, err := e.value()
		if err != nil {
			return fmt.Errorf("extension %v: %w", e.oid, err)
		}
		id, _ := e.oid.ASN1()
		t.ExtraExtensions = append(t.ExtraExtensions, pkix.Extension{Id: id, Critical: e.critical, Value: value})
	}
	return nil
}

// tpmSpecification is the subject directory attributes with the TPM specification attribute:
// family "2.0", level 0, revision 138 (EK Credential Profile 2.6, section 3.2).
const tpmSpecification = "\x30\x19\x30\x17\x06\x05\x67\x81\x05\x02\x10\x31\x0e\x30\x0c\x0c\x032.0\x02\x01\x00\x02\x02\x00\x8a"
