package tpmcert

import (
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/oid"
)

// EKProfile says what one issuer's EK certificates look like, and which departures
// from the TCG's EK Credential Profile are let through. The zero value is refused by
// [NewEKVerifier]; a profile with a Name alone asks for everything: the extended key
// usage tcg-kp-EKCertificate, a key usage that fits the key, basic constraints, and a
// directory name with manufacturer, model and version.
//
// Whatever the profile, these are refused: a CA certificate; an AK's certificate
// (extended key usage tcg-kp-AIKCertificate, or a key usage that lacks the one of an
// EK); a critical extension that is not understood; a weak or ROCA-vulnerable key.
type EKProfile struct {
	// Name is for people, for example "TCG EK". It must not be empty.
	Name string
	// Extensions are identifiers of further extensions that must be there.
	Extensions []oid.OID
	// RequireSpecification asks for the TPM specification attribute.
	RequireSpecification bool

	// Encoding are the faults of encoding that are let through.
	Encoding EKEncoding
	// TPM12Specification lets a specification attribute of family 1.2 through. Such
	// a certificate was made for a TPM 1.2; some parts kept it through an update to
	// TPM 2.0.
	TPM12Specification bool
	// NoExtKeyUsage lets certificates without the extended key usage extension
	// through (Infineon's of 2015 and earlier, Google's newer ones). Where there is
	// one it still must list tcg-kp-EKCertificate.
	NoExtKeyUsage bool
	// NoKeyUsage lets certificates without the key usage extension through, as those
	// made to the TPM 1.2 credential profile are. On Google's the key usage alone
	// tells an EK from an AK.
	NoKeyUsage bool
	// NoDirectoryName lets certificates without a TCG directory name through
	// (Google's newer ones).
	NoDirectoryName bool
	// NoBasicConstraints lets certificates without basic constraints through.
	NoBasicConstraints bool
	// KeyEnciphermentOfECC lets the key usage keyEncipherment of an ECC key through,
	// as Intel writes it, in the place of keyAgreement.
	KeyEnciphermentOfECC bool

	// InsecureAllowSHA1Links lets signatures over SHA-1 (RSA, PKCS #1 v1.5) in the
	// chain through, from the EK certificate up. Whoever finds a collision can forge
	// such a certificate while its issuer still signs so; the old vendors' chains
	// have nothing else. The root's own signature is never looked at.
	InsecureAllowSHA1Links bool
	// InsecureAllowExpiredEK lets an EK certificate through that is past its end. It
	// and its chain must have been valid at that end. A TPM outlives its certificate,
	// but nobody revokes an expired one, and lists drop what has expired: one that was
	// revoked passes again after its end. So it cannot stand with [EKIssuer.RequireCRL].
	InsecureAllowExpiredEK bool
}

// EKProfileTCG asks for all that the TCG's EK Credential Profile 2.6 (section 3.2)
// says an EK certificate must have, and tolerates nothing. Certificates of Infineon,
// STMicroelectronics, Nuvoton, AMD and swtpm from about 2016 on hold under it.
func EKProfileTCG() EKProfile { return EKProfile{Name: "TCG EK"} }

// EKProfileIntel is EKProfileTCG for Intel's PTT, whose ECC certificates say
// keyEncipherment.
func EKProfileIntel() EKProfile { return EKProfile{Name: "Intel PTT EK", KeyEnciphermentOfECC: true} }

// EKProfileGoogle is for the newer EK certificates of Compute Engine. They have
// neither extended key usage nor subjectAltName; the key usage alone tells them from
// an AK's, and Google's instance-identity extension from other certificates.
func EKProfileGoogle() EKProfile {
	return EKProfile{
		Name:            "Google Compute Engine EK",
		Extensions:      []oid.OID{oid.KubernetesNodeProviderIdentifier},
		NoExtKeyUsage:   true,
		NoDirectoryName: true,
	}
}

// EKProfileTPM12 is for certificates made to the TPM 1.2 credential profile, as
// Infineon, Nuvoton and STMicroelectronics issued them until about 2016: an RSAES-OAEP
// key, no key usage, no extended key usage (Infineon) and family 1.2. Their chains are
// signed over SHA-1, so they are refused until InsecureAllowSHA1Links is set.
func EKProfileTPM12() EKProfile {
	return EKProfile{
		Name:               "TPM 1.2 EK",
		Encoding:           EKEncoding{RSAESOAEPKey: true},
		TPM12Specification: true,
		NoExtKeyUsage:      true,
		NoKeyUsage:         true,
	}
}

func (p EKProfile) clone() EKProfile {
	p.Extensions = slices.Clone(p.Extensions)
	return p
}

func checkEKProfile(p *EKProfile) error {
	if p.Name == "" {
		return errors.New("a profile without a name")
	}
	if p.NoExtKeyUsage && p.NoKeyUsage && p.NoDirectoryName {
		return fmt.Errorf("profile %s asks for nothing that tells an EK certificate from others", p.Name)
	}
	return nil
}

// ekProfileChecks is the number of steps of EKProfile.check.
const ekProfileChecks = 7

// check holds a certificate against the profile. It makes no public-key operation and
// says nothing about who signed it. With a refusal comes the number of checks before it
// that passed: of several profiles, the one that came furthest is the one that was meant.
func (p *EKProfile) check(ek *EKCertificate) (passed int, err error) {
	steps := [ekProfileChecks]func() error{
		func() error { return p.Encoding.check(ek.Encoding) },
		func() error { return p.checkConstraints(ek.Certificate) },
		func() error { return checkExtKeyUsage(ek.Certificate, ekUsages, p.NoExtKeyUsage, p.Name) },
		func() error {
			if p.NoDirectoryName || ek.Directory.whole() {
				return nil
			}
			return refuse(CheckSubjectAltName, "no whole TCG directory name", "manufacturer, model and version, by profile "+p.Name)
		},
		func() error { return checkExtensions(ek.Certificate, p.Extensions, p.Name) },
		func() error { return p.checkSpecification(ek.Specification) },
		func() error { return p.checkKeyUsage(ek) },
	}
	for n, step := range steps {
		if err := step(); err != nil {
			return n, err
		}
	}
	return len(steps), nil
}

// ekUsages are the extended key usages of EK certificates.
var ekUsages = []oid.OID{oid.TCGKpEKCertificate}

func (p *EKProfile) checkConstraints(cert *x509.Certificate) error {
	if cert.IsCA {
		return refuse(CheckCertificateCA, "a CA certificate", "the certificate of an EK")
	}
	if !p.NoBasicConstraints && !cert.BasicConstraintsValid {
		return refuse(CheckCertificateExtension, "no basic constraints", "CA:FALSE, by profile "+p.Name)
	}
	return nil
}

func (p *EKProfile) checkKeyUsage(ek *EKCertificate) error {
	usage := ek.Certificate.KeyUsage
	if !hasExtension(ek.Certificate, oid.KeyUsage) {
		if p.NoKeyUsage {
			return nil
		}
		return refuse(CheckCertificateKeyUsage, "no key usage", "that of an EK, by profile "+p.Name)
	}
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
		return refuse(CheckCertificateKeyUsage, got, keyUsageText(want)+" (an EK's), by profile "+p.Name)
	}
	return nil
}

func (p *EKProfile) checkSpecification(s *TPMSpecification) error {
	switch {
	case s == nil && p.RequireSpecification:
		return refuse(CheckSpecification, "none", "family 2.0, by profile "+p.Name)
	case s == nil || s.Family == "2.0" || s.Family == "1.2" && p.TPM12Specification:
		return nil
	}
	return refuse(CheckSpecification, "TPM family "+s.Family, "2.0, by profile "+p.Name)
}

// usedBy names the tolerances without which the certificate would have been refused.
func (p *EKProfile) usedBy(ek *EKCertificate) []string {
	cert := ek.Certificate
	_, isRSA := ek.PublicKey.(*rsa.PublicKey)
	var names []string
	for _, t := range []struct {
		used bool
		name string
	}{
		{ek.Encoding.NVPadding, "NVPadding"},
		{ek.Encoding.TCGHeader, "TCGHeader"},
		{ek.Encoding.RSAESOAEPKey, "RSAESOAEPKey"},
		{ek.Specification != nil && ek.Specification.Family != "2.0", "TPM12Specification"},
		{!hasExtension(cert, oid.ExtendedKeyUsage), "NoExtKeyUsage"},
		{!hasExtension(cert, oid.KeyUsage), "NoKeyUsage"},
		{!ek.Directory.whole(), "NoDirectoryName"},
		{!cert.BasicConstraintsValid, "NoBasicConstraints"},
		{hasExtension(cert, oid.KeyUsage) && !isRSA && cert.KeyUsage&x509.KeyUsageKeyAgreement == 0, "KeyEnciphermentOfECC"},
	} {
		if t.used {
			names = append(names, t.name)
		}
	}
	return names
}
