package tpmcert

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"math/big"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest/tpm/statement"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Extended key usages as crypto/x509 takes them.
var (
	usageAzure = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 10, 3, 12}
	usageEK    = asn1.ObjectIdentifier{2, 23, 133, 8, 1}
	usageAK    = asn1.ObjectIdentifier{2, 23, 133, 8, 3}
)

// limited is a CA that may certify for these usages only, or for all.
func limited(t *testing.T, root *tpmlab.CA, usages ...asn1.ObjectIdentifier) *tpmlab.CA {
	t.Helper()
	return tpmlab.Sign(t, root, "CA", func(c *x509.Certificate) { c.UnknownExtKeyUsage, c.MaxPathLenZero = usages, true })
}

// certifiedAK is an AK's certificate by the CA, with these usages.
func certifiedAK(t *testing.T, ca *tpmlab.CA, usages ...asn1.ObjectIdentifier) *x509.Certificate {
	t.Helper()
	return tpmlab.Issued(t, &x509.Certificate{SerialNumber: big.NewInt(5), Subject: pkix.Name{CommonName: "0123.TrustedVM.Azure.windows.net"},
		NotBefore: tpmlab.Time.Add(-time.Hour), NotAfter: tpmlab.Time.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true, UnknownExtKeyUsage: usages}, ca, tpmlab.NewP256(t).Public())
}

// The certificates of Azure's AKs have Microsoft's usage, today with the TCG's, and their CAs may
// be limited to either: the CAs of one hierarchy lack Microsoft's.
func TestAzureHierarchies(t *testing.T) {
	type usages []asn1.ObjectIdentifier
	for name, c := range map[string]struct {
		ca, leaf usages
		profile  Profile
		want     refusal.Check
	}{
		"Azure Cloud Virtual TPM CA":     {usages{usageAzure, usageEK, usageAK}, usages{usageAzure, usageAK}, ProfileAzure(), ""},
		"Global Virtual TPM CA":          {usages{usageEK, usageAK}, usages{usageAzure, usageAK}, ProfileAzure(), ""},
		"a CA without limits":            {nil, usages{usageAzure, usageAK}, ProfileAzure(), ""},
		"a CA of older machines":         {usages{usageAzure}, usages{usageAzure}, ProfileAzure(), ""},
		"an older leaf below a newer CA": {usages{usageEK, usageAK}, usages{usageAzure}, ProfileAzure(), checkCertificateExtKeyUsage},
		"a CA of EKs":                    {usages{usageEK}, usages{usageAzure, usageAK}, ProfileAzure(), checkCertificateExtKeyUsage},
		"a leaf without Microsoft's":     {usages{usageEK, usageAK}, usages{usageAK}, ProfileAzure(), checkCertificateExtKeyUsage},
		"an EK's leaf":                   {nil, usages{usageEK}, ProfileAzure(), checkCertificateExtKeyUsage},
		"an EK's leaf with Microsoft's":  {nil, usages{usageAzure, usageEK}, ProfileAzure(), checkCertificateExtKeyUsage},
		"a leaf with all three":          {nil, usages{usageAzure, usageAK, usageEK}, ProfileAzure(), checkCertificateExtKeyUsage},
		"a leaf without usages":          {nil, nil, ProfileAzure(), checkCertificateExtKeyUsage},
		"under the profile of Google":    {nil, usages{usageAzure, usageAK}, ProfileGoogle(), checkCertificateExtKeyUsage},
		"under that of Windows":          {nil, usages{usageAzure, usageAK}, ProfileMicrosoftAIK(), checkSubjectAltName},
		"under that of an OEM":           {nil, usages{usageAzure, usageAK}, ProfileOEM(HardwareIdentity{Issuer: "oem"}), checkCertificatePolicy},
		"an older leaf under the TCG's":  {nil, usages{usageAzure}, ProfileTCG(), checkCertificateExtKeyUsage},
		"another TCG usage and the AK":   {nil, usages{usageAzure, usageAK, {2, 23, 133, 8, 2}}, ProfileAzure(), checkCertificateExtKeyUsage},
	} {
		t.Run(name, func(t *testing.T) {
			root := tpmlab.Sign(t, nil, "Azure Virtual TPM Root", nil)
			ca := limited(t, root, c.ca...)
			chain := [][]byte{certifiedAK(t, ca, c.leaf...).Raw, ca.Cert.Raw}
			_, err := VerifyAKCertificate([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: c.profile}}, chain, tpmlab.Time)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}

// A chain that Azure issued in 2026, and a quote by its key: the values of the PCRs were not
// recorded, so the signature is all that can be checked.
func TestAzureOf2026(t *testing.T) {
	file := func(name string) []byte { return tpmlab.Corpus(t, "azure-vtpm-2026", name) }
	root := tpmlab.Parsed(t, file("root-2023.der"))
	chain := [][]byte{file("ak-cert.der"), file("ica-11.der"), file("ca-2025.der")}
	at := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	under := func(p Profile) []Issuer { return []Issuer{{Roots: []*x509.Certificate{root}, Profile: p}} }
	ak, err := VerifyAKCertificate(under(ProfileAzure()), chain, at)
	testkit.NoError(t, err)
	if len(ak.Chain) != 4 || !strings.HasPrefix(string(ak.Machine), "ak:sha256:") {
		t.Errorf("a chain of %d, machine %s", len(ak.Chain), ak.Machine)
	}
	stored := under(ProfileAzure())
	for _, der := range chain[1:] {
		stored[0].Intermediates = append(stored[0].Intermediates, tpmlab.Parsed(t, der))
	}
	if _, err := VerifyAKCertificate(stored, chain[:1], at); err != nil {
		t.Errorf("with the intermediates of the control plane: %v", err)
	}
	for _, p := range []Profile{ProfileGoogle(), ProfileMicrosoftAIK(), ProfileOEM(HardwareIdentity{Issuer: "oem"})} {
		if _, err := VerifyAKCertificate(under(p), chain, at); err == nil {
			t.Errorf("accepted under %s", p.Name)
		}
	}
	if _, err := VerifyAKCertificate(under(ProfileAzure()), chain, at.AddDate(1, 0, 0)); !errors.Is(err, checkCertificateExpired) {
		t.Errorf("a year later: %v", err)
	}
	nonce, err := hex.DecodeString(strings.TrimSpace(string(file("nonce.hex"))))
	testkit.NoError(t, err)
	for change, want := range map[byte]refusal.Check{0: "", 1: "tpm-signature"} {
		quoted := file("quote.bin")
		quoted[len(quoted)-1] ^= change
		in := statement.QuoteInput{CertifyInput: statement.CertifyInput{AKKey: ak.Key}}
		testkit.NoError(t, in.ParseQuote(&statement.QuoteEvidence{Attest: quoted, Signature: file("quote.tpmt-signature.bin")}))
		if !bytes.Equal(in.Attest.ExtraData, nonce) {
			t.Errorf("the quote is over %x", in.Attest.ExtraData)
		}
		tpmlab.ExpectCheck(t, in.CheckSignature(), want)
	}
}

// Every profile on whole chains, whose CAs are limited as its makers' CAs are, and to usages that
// do not suffice.
func TestProfilesBelowLimitedCAs(t *testing.T) {
	type usages []asn1.ObjectIdentifier
	windows, pluton := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 21, 36}, asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 311, 122, 2}
	oem, intel := ProfileOEM(HardwareIdentity{Issuer: "oem"}), x509.KeyUsageKeyEncipherment
	for name, c := range map[string]struct {
		profile     any
		leaf        tpmsim.CertificateOptions
		real, other usages
	}{
		"AKs of the TCG's form":        {ProfileTCG(), tpmsim.CertificateOptions{}, usages{usageAK}, usages{usageEK}},
		"AKs of Google":                {ProfileGoogle(), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle}, usages{usageEK}, usages{windows}},
		"older AKs of Google":          {ProfileGoogle(), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogleOld}, usages{usageEK}, usages{usageAK}},
		"older AKs of Azure":           {ProfileAzure(), tpmsim.CertificateOptions{Style: tpmsim.StyleAzure}, usages{usageAzure, usageEK, usageAK}, usages{usageEK, usageAK}},
		"AKs of Windows":               {ProfileMicrosoftAIK(), tpmsim.CertificateOptions{}, usages{windows, usageAK}, usages{windows}},
		"IAKs without usages":          {oem, tpmsim.CertificateOptions{Style: tpmsim.StyleOEM}, usages{usageAK}, usages{usageEK}},
		"IAKs with an AK's usage":      {oem, tpmsim.CertificateOptions{Style: tpmsim.StyleOEM, ExtKeyUsage: []oid.OID{oid.TCGKpAIKCertificate}}, usages{usageAK}, usages{usageEK}},
		"EKs of the TCG's form":        {EKProfileTCG(), tpmsim.CertificateOptions{}, usages{usageEK}, usages{usageAK}},
		"EKs of Pluton":                {EKProfileTCG(), tpmsim.CertificateOptions{}, usages{usageEK, pluton}, usages{pluton}},
		"EKs of Google":                {EKProfileGoogle(), tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle}, usages{usageEK}, usages{usageAK}},
		"EKs of Intel":                 {EKProfileIntel(), tpmsim.CertificateOptions{KeyUsage: &intel}, usages{usageEK}, usages{usageAK}},
		"EKs of TPM 1.2, later":        {EKProfileTPM12(), tpmsim.CertificateOptions{}, usages{usageEK}, usages{usageAK}},
		"EKs of TPM 1.2 without usage": {EKProfileTPM12(), tpmsim.CertificateOptions{ExtKeyUsage: []oid.OID{}}, usages{usageEK}, usages{usageAK}},
	} {
		t.Run(name, func(t *testing.T) {
			root, key := tpmlab.Sign(t, nil, "root", nil), tpmlab.NewP256(t)
			for ca, want := range map[*tpmlab.CA]refusal.Check{limited(t, root): "", limited(t, root, c.real...): "", limited(t, root, c.other...): checkCertificateExtKeyUsage} {
				tpmlab.ExpectCheck(t, underProfile(t, c.profile, root, ca, styled(t, c.profile, c.leaf, ca, key.Public())), want)
			}
		})
	}
}

// styled is a certificate by the CA, for an AK or an EK, as the profile is one's.
func styled(t *testing.T, profile any, o tpmsim.CertificateOptions, ca *tpmlab.CA, key crypto.PublicKey) *x509.Certificate {
	t.Helper()
	var template x509.Certificate
	o.Edit = func(c *x509.Certificate) { template = *c }
	maker, err := tpmsim.NewCA(tpmsim.CAOptions{Now: func() time.Time { return tpmlab.Time }})
	testkit.NoError(t, err)
	issue := maker.IssueAK
	if _, ok := profile.(EKProfile); ok {
		issue = maker.IssueEK
	}
	if _, err := issue(key, o); err != nil {
		t.Fatal(err)
	}
	template.AuthorityKeyId = nil
	return tpmlab.Issued(t, &template, ca, key)
}

// underProfile verifies a chain of one intermediate under a Profile or an EKProfile.
func underProfile(t *testing.T, profile any, root, ca *tpmlab.CA, leaf *x509.Certificate) error {
	t.Helper()
	if ek, ok := profile.(EKProfile); ok {
		_, err := verifyAt(ekVerifierOf(t, trusting(ek, root)), tpmlab.Time, leaf, ca.Cert)
		return err
	}
	issuers := []Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: profile.(Profile)}}
	_, err := VerifyAKCertificate(issuers, [][]byte{leaf.Raw, ca.Cert.Raw}, tpmlab.Time)
	return err
}

// A profile that lists projects takes certificates of their instances alone, on both roads.
func TestProjects(t *testing.T) {
	google, ek, tcg := ProfileGoogle(), EKProfileGoogle(), ProfileTCG()
	root, key := tpmlab.Sign(t, nil, "root", nil), tpmlab.NewP256(t)
	ca := limited(t, root)
	of := func(project string) tpmsim.CertificateOptions {
		instance := tpmsim.DefaultInstance()
		instance.ProjectID = project
		return tpmsim.CertificateOptions{Style: tpmsim.StyleGoogle, Instance: instance}
	}
	tcg.Identity, tcg.Projects = []IdentitySource{AKIdentity{}}, []string{"mine"}
	google.Projects, ek.Projects = []string{"mine", "example.com:mine"}, []string{"mine", "example.com:mine"}
	for name, c := range map[string]struct {
		profile any
		leaf    tpmsim.CertificateOptions
		want    refusal.Check
	}{
		"an AK of the first":          {google, of("mine"), ""},
		"an AK of the other":          {google, of("example.com:mine"), ""},
		"an AK of neither":            {google, of("mine-2"), checkCertificateProject},
		"an AK of any":                {ProfileGoogle(), of("mine-2"), ""},
		"an EK of the first":          {ek, of("mine"), ""},
		"an EK of neither":            {ek, of("mine-2"), checkCertificateProject},
		"an AK that names no project": {tcg, tpmsim.CertificateOptions{}, checkCertificateProject},
	} {
		t.Run(name, func(t *testing.T) {
			tpmlab.ExpectCheck(t, underProfile(t, c.profile, root, ca, styled(t, c.profile, c.leaf, ca, key.Public())), c.want)
		})
	}
	id, _ := oid.KubernetesNodeProviderIdentifier.ASN1()
	tpmlab.ExpectCheck(t, checkProject(&x509.Certificate{Extensions: []pkix.Extension{{Id: id, Value: []byte{0x30, 0}}}}, []string{"mine", ""}, "a profile"), checkCertificateProject)
	for _, project := range []string{"", "123", "Mine", "mine/1"} {
		google.Projects, ek.Projects = []string{project}, []string{project}
		_, ak := NewAKVerifier([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: google}})
		_, bad := NewEKVerifier(trusting(ek, root))
		for _, err := range []error{ak, bad} {
			if !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("project %q: got %v", project, err)
			}
		}
	}
}

// A verifier keeps its projects, whatever becomes of the list that it was made from.
func TestProjectsAreCopied(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	google, ek := ProfileGoogle(), EKProfileGoogle()
	google.Projects, ek.Projects = []string{"mine"}, []string{"mine"}
	aks, err1 := NewAKVerifier([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: google}})
	eks, err2 := NewEKVerifier(trusting(ek, root))
	testkit.NoError(t, errors.Join(err1, err2))
	google.Projects[0], ek.Projects[0] = "theirs", "theirs"
	if a, e := aks.Profiles()[0].Projects[0], eks.Profiles()[0].Projects[0]; a != "mine" || e != "mine" {
		t.Errorf("got %s and %s", a, e)
	}
}

// Every profile takes certificates of real machines with their whole chains in this year.
func TestProfilesIn2026(t *testing.T) {
	roots, intermediates := vendorCAs(t)
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for file, want := range map[string]string{
		"ek-certs/leaf/AMD-aik-RSA2048-7e819b3d.der":  "TCG AK, Microsoft AIK",
		"ek-certs/leaf/INTC-aik-RSA2048-240f005a.der": "TCG AK, Microsoft AIK",
		"ek-certs/leaf/GOOG-gce-P-256-25a5373d.der":   "Google Compute Engine AK",
		"ek-certs/leaf/GOOG-ek-P-256-9c49baf0.der":    "Google Compute Engine AK",
		"azure-vtpm-2026/ak-cert.der":                 "TCG AK, Azure vTPM AK",
		"oem/generated/H-2.iak.cert":                  "OEM IAK",
		"ek-certs/leaf/IFX-ek-RSA2048-234480e4.der":   "TCG EK, Intel PTT EK, TPM 1.2 EK",
		"ek-certs/leaf/NTC-ek-RSA2048-933cdb17.der":   "TCG EK, Intel PTT EK, TPM 1.2 EK",
		"ek-certs/leaf/STM-ek-P-256-85f38843.der":     "TCG EK, Intel PTT EK, TPM 1.2 EK",
		"ek-certs/leaf/GOOG-gce-RSA2048-3722cd55.der": "Google Compute Engine EK",
	} {
		t.Run(file, func(t *testing.T) {
			chain := [][]byte{tpmlab.Corpus(t, strings.Split(file, "/")...)}
			roots := slices.Clone(roots)
			switch dir, _ := path.Split(file); dir {
			case "azure-vtpm-2026/":
				chain = append(chain, tpmlab.Corpus(t, dir, "ica-11.der"), tpmlab.Corpus(t, dir, "ca-2025.der"))
				roots = append(roots, tpmlab.Parsed(t, tpmlab.Corpus(t, dir, "root-2023.der")))
			case "oem/generated/":
				roots = append(roots, tpmlab.Parsed(t, tpmlab.Corpus(t, dir, "root.der")))
			}
			var got []string
			for _, p := range []Profile{ProfileTCG(), ProfileGoogle(), ProfileAzure(), ProfileMicrosoftAIK(), ProfileOEM(HardwareIdentity{Issuer: "oem"})} {
				if ak, err := VerifyAKCertificate([]Issuer{{Roots: roots, Intermediates: intermediates, Profile: p}}, chain, at); err == nil {
					got = append(got, ak.Profile.Name)
				}
			}
			for _, p := range []EKProfile{EKProfileTCG(), EKProfileGoogle(), EKProfileIntel(), EKProfileTPM12()} {
				v := ekVerifierOf(t, EKVerifierConfig{Issuers: []EKIssuer{{Roots: roots, Intermediates: intermediates, Profile: p}}})
				if facts, err := verifyEKOf(t.Context(), v, &sentEK{Certificates: chain}, nil, at); err == nil {
					got = append(got, facts.Profile)
				}
			}
			if strings.Join(got, ", ") != want {
				t.Errorf("accepted under %q, want %s", got, want)
			}
		})
	}
}
