package tpmsim

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"strconv"

	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
)

// Style is the form of an AK certificate or EK certificate, modelled on those found in
// the field.
type Style int

// The styles. Each comment describes an AK certificate; an EK certificate has the EK's
// key usage, and the EK's extended key usage wherever one is named here. Key usage and
// basic constraints are critical, extended key usage is not.
const (
	// StyleTCG: empty subject, critical SAN with the directory name, EKU
	// 2.23.133.8.3, digitalSignature. TCG AK certificates differ from its EK
	// certificates in EKU and key usage.
	StyleTCG Style = iota + 1

	// StyleGoogle is that of Google's "EK/AK CA Intermediate" since 2022: a subject that
	// names zone, project and instance, digitalSignature, no EKU, no SAN, and the
	// instance-identity extension.
	StyleGoogle

	// StyleGoogleOld is what Google issued before that: empty subject, critical SAN with
	// the directory name, the EK's EKU 2.23.133.8.1 even for an AK, TPM specification
	// attribute, digitalSignature, and the instance-identity extension.
	StyleGoogleOld

	// StyleAzure is that of Azure's Trusted Launch: a subject with a host name, EKU
	// 1.3.6.1.4.1.311.10.3.12, digitalSignature and contentCommitment, no SAN.
	StyleAzure

	// StyleOEM is that of manufacturers (TCG TPM 2.0 Keys for Device Identity and
	// Attestation 1.0, section 8): the [Device] in the subject and, as HardwareModuleName
	// next to a PermanentIdentifier, in a SAN that is not critical; digitalSignature, no EKU,
	// and the certificate policies 2.23.133.11.1.1 and 2.23.133.11.1.3.
	StyleOEM
)

// Device is a machine as named in its manufacturer's certificates.
type Device struct {
	// PartNumber and SerialNumber are the subject's common name and serial number, as used
	// for buying the machine.
	PartNumber, SerialNumber string
	// HardwareSerial is the hwSerialNum of its TPM.
	HardwareSerial string
}

// DefaultDevice returns the machine that certificates in StyleOEM name if the caller names
// none.
func DefaultDevice() *Device {
	return &Device{PartNumber: "SIM-1000", SerialNumber: "SIM0000001",
		HardwareSerial: "SIM :5F2C9E0A41B7D3866C10:01A4"}
}

// otherNames returns HardwareModuleName (RFC 4108) and PermanentIdentifier (RFC 4043).
func (d *Device) otherNames() []der.OtherName {
	hwType, _ := oid.TCGTPM20.ASN1()
	module, _ := asn1.Marshal(struct { // never fails
		Type   asn1.ObjectIdentifier
		Serial []byte
	}{hwType, []byte(d.HardwareSerial)})
	permanent, _ := asn1.Marshal(struct { // never fails
		Identifier string `asn1:"utf8"`
	}{fmt.Sprintf("%x", sha256.Sum256([]byte(d.HardwareSerial)))})
	return []der.OtherName{{Type: oid.HardwareModuleName, Value: module}, {Type: oid.PermanentIdentifier, Value: permanent}}
}

// OtherName is an otherName in a SAN: an identity in any form.
type OtherName struct {
	// Type is the type-id.
	Type oid.OID
	// Value is one DER value, for example a UTF8String.
	Value []byte
}

// DefaultInstance returns the Google Compute Engine machine that certificates name
// if the caller names none.
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

// style has the certificate fields of a style.
type style struct {
	name          string
	akUsage       x509.KeyUsage
	akEKU, ekEKU  oid.OID // "" for none
	san           bool    // with the directory name
	specification bool    // the TPM specification attribute, for an AK too
	// subject is nil for an empty one. instance is Google's instance-identity extension.
	subject  func(*oid.GCEInstance) pkix.Name
	instance bool
	device   bool // names a Device
}

var styles = map[Style]style{
	StyleTCG: {name: "StyleTCG", akUsage: x509.KeyUsageDigitalSignature,
		akEKU: oid.TCGKpAIKCertificate, ekEKU: oid.TCGKpEKCertificate, san: true},
	StyleGoogle: {name: "StyleGoogle", akUsage: x509.KeyUsageDigitalSignature, subject: googleSubject, instance: true},
	StyleGoogleOld: {name: "StyleGoogleOld", akUsage: x509.KeyUsageDigitalSignature,
		akEKU: oid.TCGKpEKCertificate, ekEKU: oid.TCGKpEKCertificate, san: true, specification: true, instance: true},
	StyleAzure: {name: "StyleAzure", akUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment,
		akEKU: oid.AzureKpAK, ekEKU: oid.TCGKpEKCertificate, subject: azureSubject},
	StyleOEM: {name: "StyleOEM", akUsage: x509.KeyUsageDigitalSignature, ekEKU: oid.TCGKpEKCertificate, san: true, device: true},
}

// String returns the style's Go name.
func (s Style) String() string {
	return cmp.Or(styles[s].name, fmt.Sprintf("Style(%d)", int(s)))
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
