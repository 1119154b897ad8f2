package tpmsim

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/oid"
)

// AKCertificateOptions say how an AK certificate looks. nil and each zero field
// follow the style. Not all that can be asked for is a good certificate: most fields
// are there for tests of what must be refused.
type AKCertificateOptions struct {
	// Style gives all that the other fields do not say. Zero: StyleTCG.
	Style Style

	// Subject replaces the style's subject. nil: the style's.
	Subject *pkix.Name

	// Directory is the directory name in the SAN, in styles that have one. nil:
	// DefaultDirectory.
	Directory *Directory

	// OtherName goes into the SAN beside the directory name, in styles that have a
	// SAN. nil: none.
	OtherName *OtherName

	// Instance is the machine that Google's styles name. nil: DefaultInstance.
	Instance *oid.GCEInstance

	// NotBefore and NotAfter bound the validity. Zero: one hour before and twenty
	// years after the CA's clock.
	NotBefore, NotAfter time.Time

	// KeyUsage replaces the style's. nil: the style's; a pointer to 0: no key usage.
	KeyUsage *x509.KeyUsage

	// ExtKeyUsage replaces the style's. nil: the style's; empty but not nil: none.
	ExtKeyUsage []oid.OID

	// NoSAN leaves the SAN out.
	NoSAN bool

	// IsCA makes the certificate a CA's: basicConstraints CA:TRUE. The key usage
	// stays as it is.
	IsCA bool

	// Extra extensions, written after the others. One with an identifier that the
	// certificate has already makes a certificate that crypto/x509 refuses: that is
	// an error here.
	Extra []pkix.Extension

	// Edit, if set, changes the template that goes to x509.CreateCertificate, for
	// what has no field of its own. Extensions are in ExtraExtensions there.
	Edit func(*x509.Certificate)
}

// EKCertificateOptions say how an EK certificate looks: as [AKCertificateOptions],
// with the EK's usages.
type EKCertificateOptions AKCertificateOptions

// IssueAK issues a certificate for an AK, by the intermediate for AKs. The CA
// believes every key, and asks no TPM.
func (ca *CA) IssueAK(pub crypto.PublicKey, opts *AKCertificateOptions) (*x509.Certificate, error) {
	var o AKCertificateOptions
	if opts != nil {
		o = *opts
	}
	f, err := o.Style.form()
	if err != nil {
		return nil, err
	}
	return ca.issue(&ca.ak, pub, &o, f, f.akUsage, f.akEKU)
}

// IssueEK issues a certificate for an EK, by the intermediate for EKs: EKU
// 2.23.133.8.1, keyEncipherment for an RSA key and keyAgreement for an EC key,
// critical SAN with the directory name, TPM specification attribute (TCG EK
// Credential Profile 2.6, section 3.2), unless a style or an option says otherwise.
func (ca *CA) IssueEK(pub crypto.PublicKey, opts *EKCertificateOptions) (*x509.Certificate, error) {
	var o AKCertificateOptions
	if opts != nil {
		o = AKCertificateOptions(*opts)
	}
	f, err := o.Style.form()
	if err != nil {
		return nil, err
	}
	f.specification = f.san
	usage := x509.KeyUsageKeyAgreement
	if _, ok := pub.(*rsa.PublicKey); ok {
		usage = x509.KeyUsageKeyEncipherment
	}
	return ca.issue(&ca.ek, pub, &o, f, usage, f.ekEKU)
}

func (ca *CA) issue(by *issuer, pub crypto.PublicKey, o *AKCertificateOptions, f *form, usage x509.KeyUsage, eku []oid.OID) (*x509.Certificate, error) {
	serial, err := ca.nextSerial()
	if err != nil {
		return nil, err
	}
	now := ca.now()
	t := &x509.Certificate{
		SerialNumber:          serial,
		NotBefore:             o.NotBefore,
		NotAfter:              o.NotAfter,
		KeyUsage:              usage,
		BasicConstraintsValid: true,
		IsCA:                  o.IsCA,
	}
	if t.NotBefore.IsZero() {
		t.NotBefore = now.Add(-backdate)
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = now.Add(leafLifetime)
	}
	if o.KeyUsage != nil {
		t.KeyUsage = *o.KeyUsage
	}
	if o.ExtKeyUsage != nil {
		eku = o.ExtKeyUsage
	}
	for _, u := range eku {
		id, err := asn1OID(u)
		if err != nil {
			return nil, err
		}
		t.UnknownExtKeyUsage = append(t.UnknownExtKeyUsage, id)
	}
	if err := addNames(t, o, f); err != nil {
		return nil, err
	}
	t.ExtraExtensions = append(t.ExtraExtensions, o.Extra...)
	if o.Edit != nil {
		o.Edit(t)
	}
	if id := repeated(t.ExtraExtensions); id != nil {
		return nil, fmt.Errorf("%w: extension %v twice", ErrOptions, id)
	}
	return ca.sign(t, by.certificate, pub, by.key)
}

// addNames adds the subject and, as extensions, the style's policy and what the
// certificate says about the machine: TPM specification, SAN, instance identity.
func addNames(t *x509.Certificate, o *AKCertificateOptions, f *form) error {
	instance := o.Instance
	if instance == nil {
		instance = DefaultInstance()
	}
	directory := DefaultDirectory()
	if o.Directory != nil {
		directory = *o.Directory
	}
	if f.subject != nil {
		t.Subject = f.subject(instance)
	}
	if o.Subject != nil {
		t.Subject = *o.Subject
	}
	if o.OtherName != nil && (!f.san || o.NoSAN) {
		return fmt.Errorf("%w: an OtherName in a certificate of style %v without a SAN", ErrOptions, o.Style)
	}
	if o.Instance != nil && !f.instance {
		return fmt.Errorf("%w: an Instance in a certificate of style %v, which names none", ErrOptions, o.Style)
	}
	add := func(e pkix.Extension, err error) error {
		t.ExtraExtensions = append(t.ExtraExtensions, e)
		return err
	}
	if f.policy != "" {
		if err := add(certificatePolicy(f.policy)); err != nil {
			return err
		}
	}
	if f.specification {
		if err := add(tpmSpecification()); err != nil {
			return err
		}
	}
	if f.san && !o.NoSAN {
		if err := add(subjectAltName(directory, o.OtherName, f.singleRDN)); err != nil {
			return err
		}
	}
	if f.instance {
		return add(instanceIdentity(instance))
	}
	return nil
}

// repeated returns an identifier that occurs twice, or nil.
func repeated(exts []pkix.Extension) asn1.ObjectIdentifier {
	for i, e := range exts {
		for _, f := range exts[:i] {
			if e.Id.Equal(f.Id) {
				return e.Id
			}
		}
	}
	return nil
}
