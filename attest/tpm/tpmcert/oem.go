package tpmcert

import (
	"cmp"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// ProfileOEM is the profile of the certificates that machine manufacturers issue for the
// initial attestation key (IAK) of a machine (TCG TPM 2.0 Keys for Device Identity and
// Attestation 1.0, section 8): no extended key usage, or tcg-kp-AIKCertificate, or one of the
// policies below; the key usage digitalSignature; the certificate policies
// tcg-cap-verifiedTPMResidency and tcg-cap-verifiedTPMRestricted; and a HardwareModuleName of
// a TPM 2.0 in the subjectAltName. Fields whose names begin with Insecure tolerate what real
// certificates lack.
//
// identity is [HardwareIdentity], the TPM's serial number, or [ChassisIdentity], the machine's.
// With both a machine would have two names, so choose one.
func ProfileOEM(identity IdentitySource) Profile {
	return Profile{
		Name:     "OEM IAK",
		KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate, oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMFixed,
			oid.TCGCapVerifiedTPMRestricted},
		NoExtKeyUsage:         true,
		Policies:              []oid.OID{oid.TCGCapVerifiedTPMResidency, oid.TCGCapVerifiedTPMRestricted},
		RequireHardwareModule: true,
		Identity:              []IdentitySource{identity},
	}
}

// HardwareIdentity reads the serial number of the TPM in the HardwareModuleName (RFC 4108) of
// the subjectAltName, whatever other names it contains. It names the TPM and not the machine:
// for a TPM with an EK certificate it is the TPM's manufacturer, that certificate's authority
// key identifier and its serial number, separated by colons, and each machine manufacturer
// spells them in its own way.
type HardwareIdentity struct {
	// Issuer is the caller's name for the issuer, which becomes part of the identity: 1 to 63
	// lower-case letters, digits, "." and "-". [NewAKVerifier] refuses two issuers with one
	// name and different roots: each could certify the other's machines.
	Issuer string
}

// Kind returns "hwserial".
func (HardwareIdentity) Kind() string { return "hwserial" }

// Identify returns hwserial:<issuer>/<serial number>, the bytes of hwSerialNum
// percent-encoded as by [url.PathEscape] and otherwise unchanged. A second
// HardwareModuleName, one that is malformed, empty or zeros, or one with an hwType other than
// tcg-tpm20 is an error with [attest.CheckIdentity].
func (s HardwareIdentity) Identify(cert *x509.Certificate) (attest.Identity, error) {
	return identifyBySAN(s, cert)
}

func (s HardwareIdentity) find(san *subjectAltName, inDirectory bool) (attest.Identity, error) {
	serial, err := san.tpmSerial(inDirectory)
	switch {
	case serial == nil:
		return "", err
	case isPlaceholder(string(serial)):
		return "", attest.CheckIdentity.Refuse("the TPM's serial number "+refusal.Quote(string(serial)), notPlaceholder)
	}
	return attest.Identity(s.Kind() + ":" + s.Issuer + "/" + url.PathEscape(string(serial))), nil
}

func (s HardwareIdentity) scope() OtherNameIdentity { return OtherNameIdentity{Issuer: s.Issuer} }

// tpmSerial returns hwSerialNum of the one HardwareModuleName, or nil.
func (san *subjectAltName) tpmSerial(inDirectory bool) ([]byte, error) {
	modules := slices.Clone(san.modules)
	if inDirectory {
		modules = append(modules, san.inDirectory...)
	}
	var hwType oid.OID
	var serial cryptobyte.String
	switch {
	case len(modules) == 0:
		return nil, nil
	case len(modules) > 1:
		return nil, attest.CheckIdentity.Refuse("two HardwareModuleNames", "one")
	case !oid.Read(&modules[0], &hwType) || !modules[0].ReadASN1(&serial, asn1.OCTET_STRING) || !modules[0].Empty() || serial.Empty():
		return nil, attest.CheckIdentity.Refuse("a bad HardwareModuleName", "SEQUENCE { hwType, hwSerialNum OCTET STRING }")
	case hwType != oid.TCGTPM20:
		return nil, attest.CheckIdentity.Refuse("a HardwareModuleName of type "+hwType.String(), oid.TCGTPM20.String()+", a TPM 2.0")
	}
	return serial, nil
}

// ChassisIdentity reads what identifies a purchased machine from the subject of the
// certificate: the part number, in the common name, and the serial number. So an inventory of
// purchases can name machines before they boot: [ChassisIdentity.Machine]. Some manufacturers
// write the serial number of a board there, or of a chassis with several computers; ask which one
// it is.
type ChassisIdentity struct {
	// Issuer is as in [HardwareIdentity].
	Issuer string
}

// Kind returns "chassis".
func (ChassisIdentity) Kind() string { return "chassis" }

// Machine returns the identity of the machine with this part number and serial number:
// chassis:<issuer>/<part number>/<serial number>, both as in the certificate, percent-encoded
// as by [url.PathEscape].
func (s ChassisIdentity) Machine(partNumber, serialNumber string) attest.Identity {
	return attest.Identity(s.Kind() + ":" + s.Issuer + "/" + url.PathEscape(partNumber) + "/" + url.PathEscape(serialNumber))
}

// Identify returns the [ChassisIdentity.Machine] of the subject's one common name and one
// serial number; if the latter continues with ", BaseMAC", as Hewlett Packard Enterprise
// writes it, that part is left out. A second one of either, one that is empty, or a serial number
// that is a placeholder or zeros is an error with [attest.CheckIdentity].
func (s ChassisIdentity) Identify(cert *x509.Certificate) (attest.Identity, error) {
	found := map[oid.OID][]string{}
	for _, a := range cmp.Or(cert, new(x509.Certificate)).Subject.Names {
		if id, err := oid.FromASN1(a.Type); err == nil {
			text, _ := a.Value.(string)
			found[id] = append(found[id], text)
		}
	}
	parts, serials := found[oid.CommonName], found[oid.SerialNumber]
	if len(parts) == 0 || len(serials) == 0 {
		return "", nil
	}
	serial, _, _ := strings.Cut(serials[0], ", BaseMAC ")
	if len(parts)+len(serials) > 2 || parts[0] == "" || serial == "" {
		return "", attest.CheckIdentity.Refuse("two or empty common names or serial numbers in the subject "+nameText(cert.Subject), "one of each")
	}
	if isPlaceholder(serial) {
		return "", attest.CheckIdentity.Refuse("the serial number "+refusal.Quote(serial), notPlaceholder)
	}
	return s.Machine(parts[0], serial), nil
}

// notPlaceholder is wanted where a maker wrote no serial number.
const notPlaceholder = "one of this machine: all machines of the maker that were given none have this one, so ask the maker for another certificate"

func (s ChassisIdentity) scope() OtherNameIdentity { return OtherNameIdentity{Issuer: s.Issuer} }

// checkCapabilities refuses a certificate without policies whose extended key usages, where some
// makers write them, say that the key is in a TPM and not that it is restricted: an IDevID's signs
// any data.
func (p *Profile) checkCapabilities(cert *x509.Certificate) error {
	ids, _ := extKeyUsages(cert)
	has := func(id oid.OID) bool { return slices.Contains(ids, id) }
	if restricted := oid.TCGCapVerifiedTPMRestricted; slices.Contains(p.Policies, restricted) && !has(restricted) &&
		(has(oid.TCGCapVerifiedTPMResidency) || has(oid.TCGCapVerifiedTPMFixed)) {
		return checkCertificatePolicy.Refuse(usagesText(ids), restricted.String()+" with them, by profile "+p.Name)
	}
	return nil
}

// checkPolicies checks the policies that manufacturers' certificates have.
func (p *Profile) checkPolicies(cert *x509.Certificate) error {
	if p.InsecureAllowNoPolicies && extension(cert, oid.CertificatePolicies) == nil {
		return p.checkCapabilities(cert)
	}
	for _, want := range p.Policies {
		if !slices.ContainsFunc(cert.PolicyIdentifiers, want.Equal) {
			return checkCertificatePolicy.Refuse("no certificate policy "+want.String(), "it, by profile "+p.Name)
		}
	}
	return nil
}

// checkModule checks the HardwareModuleName that manufacturers' certificates have.
func (p *Profile) checkModule(cert *x509.Certificate, san *subjectAltName) error {
	if !p.RequireHardwareModule || p.InsecureAllowNoSAN && extension(cert, oid.SubjectAltName) == nil {
		return nil
	}
	serial, err := san.tpmSerial(p.InsecureAllowDirectoryName)
	if serial == nil && err == nil {
		err = checkSubjectAltName.Refuse("no HardwareModuleName", "that of a TPM, by profile "+p.Name)
	}
	return err
}
