package tpmcert

import (
	"crypto/rsa"
	"crypto/x509"

	"github.com/nodeattest/nodeattest/oid"
)

// EKProfile says what one issuer's EK certificates look like, and which departures from the
// TCG's EK Credential Profile are tolerated. The zero value is refused by [NewEKVerifier]; a
// profile with only a Name requires everything: the extended key usage tcg-kp-EKCertificate,
// a key usage that fits the key, basic constraints, and a directory name with manufacturer,
// model and version.
//
// Whatever the profile, the following are refused: a CA certificate; an AK's certificate
// (extended key usage tcg-kp-AIKCertificate, or a key usage that lacks that of an EK); a
// critical extension that is not understood; a weak or ROCA-vulnerable key.
type EKProfile struct {
	// Name is for human readers, for example "TCG EK". It must not be empty.
	Name string
	// Extensions are the identifiers of further extensions that must be present.
	Extensions []oid.OID
	// EveryCustomer says that the issuer certifies the machines of every customer of a platform: an
	// attacker has some. Trust on first use does not accept the profile unless Projects narrows it.
	EveryCustomer bool
	// Projects are the IDs of the operator's projects on Compute Engine. A certificate is refused
	// unless Google's instance-identity extension in it names one of them; nil means any.
	Projects []string
	// RequireSpecification requires the TPM specification attribute.
	RequireSpecification bool

	// Encoding says which encoding faults are tolerated.
	Encoding EKEncoding
	// TPM12Specification allows a specification attribute of family 1.2. Such a certificate
	// was made for a TPM 1.2; some parts kept it through an update to TPM 2.0.
	TPM12Specification bool
	// NoExtKeyUsage allows certificates without the extended key usage extension (Infineon's
	// of 2015 and earlier, Google's newer ones). If there is one, it must still list
	// tcg-kp-EKCertificate.
	NoExtKeyUsage bool
	// NoKeyUsage allows certificates without the key usage extension, such as those made to
	// the TPM 1.2 credential profile. In Google's, only the key usage tells an EK from an AK.
	NoKeyUsage bool
	// NoDirectoryName allows certificates without a TCG directory name (Google's newer ones).
	NoDirectoryName bool
	// NoBasicConstraints allows certificates without basic constraints.
	NoBasicConstraints bool
	// KeyEnciphermentOfECC allows the key usage keyEncipherment for an ECC key, as Intel
	// writes it, instead of keyAgreement.
	KeyEnciphermentOfECC bool

	// InsecureAllowSHA1Links allows signatures over SHA-1 (RSA, PKCS #1 v1.5) in the chain,
	// from the EK certificate up. Anyone who finds a collision can forge such a certificate
	// as long as its issuer still signs this way; the vendors' old chains have nothing else.
	// The root's own signature is never checked.
	InsecureAllowSHA1Links bool
	// InsecureAllowExpiredEK allows an EK certificate that has expired. It and its chain must
	// have been valid when it expired. A TPM outlives its certificate, but no CA revokes an
	// expired certificate, and lists drop expired ones: a revoked certificate passes again
	// after it has expired. So this cannot be combined with [EKIssuer.RequireCRL].
	InsecureAllowExpiredEK bool
}

// EKProfileTCG requires everything that the TCG's EK Credential Profile 2.6 (section 3.2)
// says an EK certificate must have, and tolerates nothing. Certificates of Infineon,
// STMicroelectronics, Nuvoton, AMD and swtpm from about 2016 on satisfy it.
func EKProfileTCG() EKProfile { return EKProfile{Name: "TCG EK"} }

// EKProfileIntel is EKProfileTCG for Intel's PTT, whose ECC certificates say
// keyEncipherment.
func EKProfileIntel() EKProfile { return EKProfile{Name: "Intel PTT EK", KeyEnciphermentOfECC: true} }

// EKProfileGoogle is for the newer EK certificates of Compute Engine. They have neither an
// extended key usage nor a subjectAltName; only the key usage tells them from an AK's, and
// Google's instance-identity extension from other certificates. Google certifies the machines of every
// customer: set Projects.
func EKProfileGoogle() EKProfile {
	return EKProfile{
		Name:            "Google Compute Engine EK",
		Extensions:      []oid.OID{oid.KubernetesNodeProviderIdentifier},
		EveryCustomer:   true,
		NoExtKeyUsage:   true,
		NoDirectoryName: true,
	}
}

// EKProfileTPM12 is for certificates made to the TPM 1.2 credential profile, as Infineon,
// Nuvoton and STMicroelectronics issued them until about 2016: an RSAES-OAEP key, no key
// usage, no extended key usage (Infineon) and family 1.2. Their chains are signed over SHA-1,
// so they are refused unless InsecureAllowSHA1Links is set.
func EKProfileTPM12() EKProfile {
	return EKProfile{
		Name:               "TPM 1.2 EK",
		Encoding:           EKEncoding{RSAESOAEPKey: true},
		TPM12Specification: true,
		NoExtKeyUsage:      true,
		NoKeyUsage:         true,
	}
}

// ekProfileChecks is the number of steps of EKProfile.check.
const ekProfileChecks = 8

// check checks a certificate against the profile. It does no public-key operation and says
// nothing about who signed the certificate. With a refusal it returns how many checks passed
// before it: of several profiles, the one that got furthest is the one that was meant.
func (p *EKProfile) check(ek *EKCertificate) (passed int, err error) {
	for n, err := range [ekProfileChecks]error{
		p.Encoding.check(ek.Encoding),
		p.checkConstraints(ek.Certificate),
		checkExtKeyUsage(ek.Certificate, ekUsages, p.NoExtKeyUsage, p.Name),
		ek.Directory.check(!p.NoDirectoryName, p.Name),
		checkExtensions(ek.Certificate, p.Extensions, p.Name),
		checkProject(ek.Certificate, p.Projects, p.Name),
		p.checkSpecification(ek.Specification),
		p.checkKeyUsage(ek),
	} {
		if err != nil {
			return n, err
		}
	}
	return ekProfileChecks, nil
}

// ekUsages are the extended key usages of EK certificates.
var ekUsages = []oid.OID{oid.TCGKpEKCertificate}

func (p *EKProfile) checkConstraints(cert *x509.Certificate) error {
	if cert.IsCA {
		return checkCertificateCA.Refuse("a CA certificate", "the certificate of an EK")
	}
	if !p.NoBasicConstraints && !cert.BasicConstraintsValid {
		return checkCertificateExtension.Refuse("no basic constraints", "CA:FALSE, by profile "+p.Name)
	}
	return nil
}

func (p *EKProfile) checkKeyUsage(ek *EKCertificate) error {
	if p.NoKeyUsage && extension(ek.Certificate, oid.KeyUsage) == nil {
		return nil
	}
	usage := ek.Certificate.KeyUsage
	want, also := x509.KeyUsageKeyAgreement, x509.KeyUsage(0)
	if _, ok := ek.PublicKey.(*rsa.PublicKey); ok {
		want = x509.KeyUsageKeyEncipherment
	} else if p.KeyEnciphermentOfECC {
		also = x509.KeyUsageKeyEncipherment
	}
	if usage&(want|also) == 0 || usage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0 {
		got := keyUsageText(usage)
		if usage&x509.KeyUsageDigitalSignature != 0 && usage&noSigningKeyUsage == 0 {
			got += " (an AK's)"
		}
		return checkCertificateKeyUsage.Refuse(got, keyUsageText(want)+" (an EK's), by profile "+p.Name)
	}
	return nil
}

func (p *EKProfile) checkSpecification(s *TPMSpecification) error {
	switch {
	case s == nil && p.RequireSpecification:
		return checkSpecification.Refuse("none", "family 2.0, by profile "+p.Name)
	case s == nil || s.Family == "2.0" || s.Family == "1.2" && p.TPM12Specification:
		return nil
	}
	return checkSpecification.Refuse("TPM family "+s.Family, "2.0, by profile "+p.Name)
}

// tolerancesOf returns the names of the tolerances without which the certificate, with this chain,
// would have been refused.
func tolerancesOf(ek *EKCertificate, chain []*certificate, expired bool) []string {
	cert := ek.Certificate
	_, isRSA := ek.PublicKey.(*rsa.PublicKey)
	var names []string
	note := func(used bool, name string) {
		if used {
			names = append(names, name)
		}
	}
	note(ek.Encoding.NVPadding, "NVPadding")
	note(ek.Encoding.TCGHeader, "TCGHeader")
	note(ek.Encoding.RSAESOAEPKey, "RSAESOAEPKey")
	note(ek.Specification != nil && ek.Specification.Family != "2.0", "TPM12Specification")
	note(extension(cert, oid.ExtendedKeyUsage) == nil, "NoExtKeyUsage")
	note(extension(cert, oid.KeyUsage) == nil, "NoKeyUsage")
	note(!ek.Directory.whole(), "NoDirectoryName")
	note(!cert.BasicConstraintsValid, "NoBasicConstraints")
	note(extension(cert, oid.KeyUsage) != nil && !isRSA && cert.KeyUsage&x509.KeyUsageKeyAgreement == 0, "KeyEnciphermentOfECC")
	note(expired, "InsecureAllowExpiredEK")
	note(usedSHA1(chain), "InsecureAllowSHA1Links")
	return names
}
