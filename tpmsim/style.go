package tpmsim

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"strconv"

	"github.com/nodeattest/nodeattest/oid"
)

// Style is the form of an AK certificate or EK certificate, after those that are met
// in the field.
type Style int

// The styles. What each gives an AK certificate; an EK certificate has the EK's key
// usage, and the EK's extended key usage wherever one is named here. Key usage and
// basic constraints are critical, extended key usage is not.
const (
	// StyleTCG: empty subject, critical SAN with the directory name, EKU
	// 2.23.133.8.3, digitalSignature. TCG
	// AK certificates differ from its EK certificates in EKU and key usage.
	StyleTCG Style = iota + 1

	// StyleGoogle is Google's "EK/AK CA Intermediate" since 2022: a subject that
	// names zone, project and instance, digitalSignature, no EKU, no SAN, and the
	// instance-identity extension.
	StyleGoogle

	// StyleGoogleOld is what Google issued before: empty subject, critical SAN with
	// the directory name, the EK's EKU 2.23.133.8.1 even for an AK, TPM specification
	// attribute, digitalSignature, and the instance-identity extension.
	StyleGoogleOld

	// StyleMicrosoft is that of the AIK certificates that Windows gets from
	// Microsoft's cloud CA: empty subject, critical SAN with the directory name in one
	// RDN, EKU 2.23.133.8.3, critical certificate policy 1.3.6.1.4.1.311.21.31,
	// digitalSignature.
	StyleMicrosoft

	// StyleAzure is that of Azure's Trusted Launch: a subject with a host name, EKU
	// 1.3.6.1.4.1.311.10.3.12, digitalSignature and contentCommitment, no SAN.
	StyleAzure
)

// Directory is the directory name in a TPM certificate's SAN. It says what model a
// TPM is, not which (TCG EK Credential Profile 2.6, section 3.2).
type Directory struct {
	Manufacturer string // "id:" and 8 hexadecimal digits
	Model        string
	Version      string // "id:" and 8 hexadecimal digits
}

// DefaultDirectory names this package's TPMs. No maker has this manufacturer id.
func DefaultDirectory() Directory {
	return Directory{Manufacturer: "id:53494D00", Model: "tpmsim", Version: "id:00010000"}
}

// OtherName is an otherName in a SAN: an identity of any form.
type OtherName struct {
	// Type is the type-id.
	Type oid.OID
	// Value is one DER value, for example a UTF8String.
	Value []byte
}

// DefaultInstance returns the Google Compute Engine machine that certificates name
// where the caller names none.
func DefaultInstance() *oid.GCEInstance {
	return &oid.GCEInstance{
		Zone:          "us-central1-a",
		ProjectNumber: 123456789012,
		ProjectID:     "tpmsim-project",
		InstanceID:    4242424242424242424,
		InstanceName:  "tpmsim-instance",
		Security:      &oid.GCESecurity{Version: new(uint64(0)), IsProduction: new(true)},
	}
}

// String gives the style's Go name.
func (s Style) String() string {
	switch s {
	case 0:
		return "default"
	case StyleTCG:
		return "StyleTCG"
	case StyleGoogle:
		return "StyleGoogle"
	case StyleGoogleOld:
		return "StyleGoogleOld"
	case StyleMicrosoft:
		return "StyleMicrosoft"
	case StyleAzure:
		return "StyleAzure"
	}
	return fmt.Sprintf("Style(%d)", int(s))
}

// microsoftAIKPolicy is 1.3.6.1.4.1.311.21.31.
const microsoftAIKPolicy oid.OID = "\x2b\x06\x01\x04\x01\x82\x37\x15\x1f"

// form is what a style means for a certificate.
type form struct {
	san, singleRDN bool    // a SAN with the directory name, its attributes in one RDN
	instance       bool    // Google's instance-identity extension
	specification  bool    // TPM specification attribute
	policy         oid.OID // a critical certificate policy; "": none
	subject        func(*oid.GCEInstance) pkix.Name
	akUsage        x509.KeyUsage
	akEKU, ekEKU   []oid.OID
}

func (s Style) form() (*form, error) {
	f := &form{
		san:     true,
		akUsage: x509.KeyUsageDigitalSignature,
		akEKU:   []oid.OID{oid.TCGKpAIKCertificate},
		ekEKU:   []oid.OID{oid.TCGKpEKCertificate},
	}
	switch s {
	case 0, StyleTCG:
	case StyleGoogle:
		f.san, f.instance, f.subject = false, true, googleSubject
		f.akEKU, f.ekEKU = nil, nil
	case StyleGoogleOld:
		f.instance, f.specification = true, true
		f.akEKU = f.ekEKU
	case StyleMicrosoft:
		f.singleRDN, f.policy = true, microsoftAIKPolicy
	case StyleAzure:
		f.san, f.subject = false, azureSubject
		f.akUsage |= x509.KeyUsageContentCommitment
		f.akEKU = []oid.OID{oid.AzureKpAK}
	default:
		return nil, fmt.Errorf("%w: no certificate of style %v", ErrOptions, s)
	}
	return f, nil
}

func googleSubject(i *oid.GCEInstance) pkix.Name {
	return pkix.Name{
		Locality:           []string{i.Zone},
		Organization:       []string{"Google Compute Engine"},
		OrganizationalUnit: []string{i.ProjectID},
		CommonName:         strconv.FormatUint(i.InstanceID, 10),
	}
}

func azureSubject(*oid.GCEInstance) pkix.Name {
	return pkix.Name{CommonName: "0123456789ab.TrustedVM.Azure.Microsoft"}
}
