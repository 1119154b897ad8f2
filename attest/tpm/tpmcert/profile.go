package tpmcert

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Checks of an AK certificate against its issuer's profile.
const (
	// checkCertificateCA: the AK certificate is a CA certificate.
	checkCertificateCA refusal.Check = "certificate-is-ca"
	// checkCertificateExtKeyUsage: the extended key usage that the profile requires is
	// missing, or there is one that makes it another kind of certificate, for example that of
	// an EK.
	checkCertificateExtKeyUsage refusal.Check = "certificate-ext-key-usage"
	// checkCertificateKeyUsage: a key usage that the profile requires is missing, or there is
	// one that no signing key has.
	checkCertificateKeyUsage refusal.Check = "certificate-key-usage"
	// checkCertificateExtension: an extension that the profile requires is missing, or there
	// is a critical one that is not understood.
	checkCertificateExtension refusal.Check = "certificate-extension"
	// checkCertificatePolicy: a certificate policy that the profile requires is missing.
	checkCertificatePolicy refusal.Check = "certificate-policy"
)

// Profile says what one issuer's AK certificates look like. Real ones differ, so trust is a
// list of issuers, each with a profile. The zero value refuses every certificate, and
// [NewAKVerifier] refuses the zero value: start from one of the functions below, or give
// every field some thought.
//
// Whatever the profile, the following are refused: a CA certificate; a key usage of
// keyEncipherment, dataEncipherment, keyAgreement, keyCertSign or cRLSign (but see
// InsecureAllowCA); an extended key usage of the TCG that is not listed (except an AK's together
// with Azure's for AKs); a critical extension that is not understood.
type Profile struct {
	// Name is for human readers, for example "TCG AK". It must not be empty.
	Name string
	// KeyUsage has the bits that must be set in the key usage extension. Zero is refused by
	// NewAKVerifier unless InsecureAllowAnyKeyUsage is set.
	KeyUsage x509.KeyUsage
	// InsecureAllowAnyKeyUsage admits certificates without the key usage extension. On GCE,
	// only the key usage tells an AK from an EK.
	InsecureAllowAnyKeyUsage bool
	// ExtKeyUsage lists extended key usages; the certificate must have at least one of them.
	ExtKeyUsage []oid.OID
	// NoExtKeyUsage admits certificates without the extension. With an empty
	// ExtKeyUsage the certificate then must not have it.
	NoExtKeyUsage bool
	// RequireDirectoryName requires a TCG directory name (manufacturer, model, version) in
	// the subjectAltName.
	RequireDirectoryName bool
	// Extensions are the identifiers of further extensions that must be present.
	Extensions []oid.OID
	// Policies are the identifiers of certificate policies, all of which the certificate must
	// have. InsecureAllowNoPolicies admits certificates without the extension: nothing in
	// those says that the issuer has verified where the key is.
	Policies                []oid.OID
	InsecureAllowNoPolicies bool
	// RequireHardwareModule requires one HardwareModuleName (RFC 4108) of a TPM 2.0 in the
	// subjectAltName. InsecureAllowNoSAN admits certificates without a subjectAltName:
	// nothing in those says that they are a TPM's and not a management controller's.
	RequireHardwareModule bool
	InsecureAllowNoSAN    bool
	// InsecureAllowDirectoryName also accepts a HardwareModuleName in a directoryName of the
	// subjectAltName, where swtpm writes it although no document puts it there.
	InsecureAllowDirectoryName bool
	// InsecureAllowCA admits certificates whose basic constraints say CA:TRUE, even those
	// with the key usage keyEncipherment, as Hewlett Packard Enterprise issued them for its
	// 10th generation. A certificate with the key usage keyCertSign is still refused, so that
	// no key is both an attestation key and a CA's.
	InsecureAllowCA bool
	// Identity lists the forms of machine identity to look for, in order: the first that the
	// certificate has is the machine's. A certificate that has none of them is refused, so
	// end the list with [AKIdentity] if any certificate will do.
	Identity []IdentitySource
	// EveryCustomer says that the issuer certifies the machines of every customer of a platform: an
	// attacker has some. Trust on first use does not accept the profile unless Projects narrows it.
	EveryCustomer bool
	// Projects are the IDs of the operator's projects on Compute Engine. A certificate is refused
	// unless Google's instance-identity extension in it names one of them; nil means any.
	Projects []string
	// OneAKPerMachine is the issuer's promise that one machine never gets certificates for
	// two AKs. Without it an ak: identity names a key, which trust on first use must not
	// mistake for a machine.
	OneAKPerMachine bool
	// AllowAKBelowOtherKeys admits AKs that are not primary keys of the endorsement, owner or
	// platform hierarchy, but are below a storage key or an EK. For such an AK, the
	// certificate binds only the key: what its public area says about attributes and Name is
	// the node's claim. For a primary key, the statement's qualified signer binds every bit
	// of the public area.
	AllowAKBelowOtherKeys bool
	// InsecureAllowSHA1Signature admits statements whose signature is over SHA-1. AKs that
	// Windows makes for Microsoft's issuer sign this way.
	InsecureAllowSHA1Signature bool
}

// ProfileTCG is the profile of AK certificates as the TCG describes them: the extended key
// usage tcg-kp-AIKCertificate and the key usage digitalSignature. The identity is the
// OtherName of the 2018 document if there is one, otherwise the AK's digest.
func ProfileTCG() Profile {
	return Profile{
		Name:        "TCG AK",
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate},
		Identity:    []IdentitySource{OtherNameIdentity{}, AKIdentity{}},
	}
}

// ProfileGoogle is the profile of the AK certificates of Compute Engine. The newer ones have
// neither an extended key usage nor a subjectAltName, the older ones have the EK's usage
// (2.23.133.8.1); only the key usage tells an AK from an EK. All name the instance in
// Google's extension, and the identity is taken from there. Google certifies the machines of every
// customer: set Projects.
func ProfileGoogle() Profile {
	return Profile{
		Name:          "Google Compute Engine AK",
		KeyUsage:      x509.KeyUsageDigitalSignature,
		ExtKeyUsage:   []oid.OID{oid.TCGKpEKCertificate},
		NoExtKeyUsage: true,
		Extensions:    []oid.OID{oid.KubernetesNodeProviderIdentifier},
		Identity:      []IdentitySource{GCEIdentity{}},
		EveryCustomer: true,
	}
}

// ProfileAzure is the profile of the AK certificates of Azure's Trusted Launch virtual machines.
// All have the extended key usage 1.3.6.1.4.1.311.10.3.12, newer ones together with
// tcg-kp-AIKCertificate. There are two hierarchies under one root, and the CAs of one of them may
// certify for the latter only. The identity is the AK's digest.
func ProfileAzure() Profile {
	return Profile{
		Name:                  "Azure vTPM AK",
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []oid.OID{oid.AzureKpAK},
		Identity:              []IdentitySource{AKIdentity{}},
		EveryCustomer:         true,
		AllowAKBelowOtherKeys: true,
	}
}

// ProfileMicrosoftAIK is the profile of the AIK certificates that Windows gets from
// Microsoft's cloud CA under the root "Microsoft TPM Root Certificate Authority 2014":
// tcg-kp-AIKCertificate and a TCG directory name. A machine can get many. Signatures over
// SHA-1, which those AKs make, are refused unless InsecureAllowSHA1Signature is set.
func ProfileMicrosoftAIK() Profile {
	return Profile{
		Name:                  "Microsoft AIK",
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []oid.OID{oid.TCGKpAIKCertificate},
		RequireDirectoryName:  true,
		Identity:              []IdentitySource{AKIdentity{}},
		EveryCustomer:         true,
		AllowAKBelowOtherKeys: true,
	}
}

func (p Profile) clone() Profile {
	p.ExtKeyUsage, p.Extensions, p.Identity = slices.Clone(p.ExtKeyUsage), slices.Clone(p.Extensions), slices.Clone(p.Identity)
	p.Policies, p.Projects = slices.Clone(p.Policies), slices.Clone(p.Projects)
	return p
}

// noSigningKeyUsage has the usages that no AK has.
const noSigningKeyUsage = x509.KeyUsageKeyEncipherment | x509.KeyUsageDataEncipherment |
	x509.KeyUsageKeyAgreement | x509.KeyUsageCertSign | x509.KeyUsageCRLSign |
	x509.KeyUsageEncipherOnly | x509.KeyUsageDecipherOnly

// check checks a certificate against the profile. It does no public-key operation and says
// nothing about who signed the certificate.
func (p *Profile) check(cert *x509.Certificate, san *subjectAltName) error {
	if cert.IsCA && !p.InsecureAllowCA {
		return checkCertificateCA.Refuse("a CA certificate", "the certificate of an AK")
	}
	return cmp.Or(
		p.checkKeyUsage(cert),
		checkExtKeyUsage(cert, p.ExtKeyUsage, p.NoExtKeyUsage, p.Name),
		san.directory.check(p.RequireDirectoryName, p.Name),
		checkExtensions(cert, p.Extensions, p.Name),
		checkProject(cert, p.Projects, p.Name),
		p.checkPolicies(cert),
		p.checkModule(cert, san))
}

// checkExtensions requires the extensions that a profile lists.
func checkExtensions(cert *x509.Certificate, ids []oid.OID, profile string) error {
	for _, id := range ids {
		if extension(cert, id) == nil {
			return checkCertificateExtension.Refuse("no extension "+id.String(), "it, by profile "+profile)
		}
	}
	return nil
}

func (p *Profile) checkKeyUsage(cert *x509.Certificate) error {
	bad := cert.KeyUsage & noSigningKeyUsage
	if cert.IsCA { // by InsecureAllowCA
		bad &^= x509.KeyUsageKeyEncipherment
	}
	if bad != 0 {
		return checkCertificateKeyUsage.Refuse(keyUsageText(cert.KeyUsage), "no usage but that of a signing key")
	}
	if cert.KeyUsage&p.KeyUsage != p.KeyUsage {
		return checkCertificateKeyUsage.Refuse(keyUsageText(cert.KeyUsage), keyUsageText(p.KeyUsage))
	}
	return nil
}

// tcgUsages are the extended key usages that tell the TCG's kinds of certificates apart.
var tcgUsages = map[oid.OID]string{
	oid.TCGKpEKCertificate:       " (an EK's)",
	oid.TCGKpAIKCertificate:      " (an AK's)",
	oid.TCGKpPlatformCertificate: " (a platform certificate's)",
}

// countingUsages are the usages that a profile lists, and the usage of AKs if Azure's is listed and
// in the certificate: certificates of Azure have both, and their CAs may be limited to either.
func countingUsages(wanted, has []oid.OID) []oid.OID {
	if slices.Contains(wanted, oid.AzureKpAK) && slices.Contains(has, oid.AzureKpAK) {
		return append(slices.Clone(wanted), oid.TCGKpAIKCertificate)
	}
	return wanted
}

// checkExtKeyUsage requires one of the wanted usages, or no extension if it is optional, and
// refuses usages that make the certificate another of the TCG's kinds.
func checkExtKeyUsage(cert *x509.Certificate, wanted []oid.OID, optional bool, profile string) error {
	ids, ok := extKeyUsages(cert)
	counting := countingUsages(wanted, ids)
	foreign := slices.IndexFunc(ids, func(id oid.OID) bool { return !slices.Contains(counting, id) && tcgUsages[id] != "" })
	got := ""
	switch {
	case ok && ids == nil && optional:
		return nil
	case ok && ids == nil:
		got = "no extended key usage"
	case !ok:
		got = "a bad extension"
	case foreign >= 0:
		got = usagesText(ids[foreign : foreign+1])
	case slices.ContainsFunc(ids, func(id oid.OID) bool { return slices.Contains(wanted, id) }):
		return nil
	default:
		got = usagesText(ids)
	}
	want := "none"
	if len(wanted) > 0 {
		want = "one of " + usagesText(wanted)
	}
	return checkCertificateExtKeyUsage.Refuse(got, want+", by profile "+profile)
}

// extKeyUsages returns the identifiers in the extension, or nil without one; ok is false if it
// cannot be parsed, or has more than maxUsages.
func extKeyUsages(cert *x509.Certificate) (ids []oid.OID, ok bool) {
	e := extension(cert, oid.ExtendedKeyUsage)
	if e == nil {
		return nil, true
	}
	in, list := cryptobyte.String(e.Value), cryptobyte.String(nil)
	if !in.ReadASN1(&list, asn1.SEQUENCE) || !in.Empty() {
		return nil, false
	}
	for ids = make([]oid.OID, 0, 2); !list.Empty(); {
		var id oid.OID
		if len(ids) == maxUsages || !oid.Read(&list, &id) {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}

func usagesText(usages []oid.OID) string {
	names := make([]string, 0, len(usages))
	for _, id := range usages {
		names = append(names, id.String()+tcgUsages[id])
	}
	return strings.Join(names, ", ")
}

// extension returns the extension with that identifier, or nil. crypto/x509 refuses a
// certificate that has two.
func extension(cert *x509.Certificate, id oid.OID) *pkix.Extension {
	n := slices.IndexFunc(cert.Extensions, func(e pkix.Extension) bool { return id.Equal(e.Id) })
	if n < 0 {
		return nil
	}
	return &cert.Extensions[n]
}

// keyUsageText names the bits in order.
func keyUsageText(u x509.KeyUsage) string {
	var names []string
	for bit := x509.KeyUsageDigitalSignature; bit <= x509.KeyUsageDecipherOnly; bit <<= 1 {
		if u&bit != 0 {
			names = append(names, bit.String())
		}
	}
	if names == nil {
		return "no key usage"
	}
	return "key usage " + strings.Join(names, ", ")
}
