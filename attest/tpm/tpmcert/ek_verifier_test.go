package tpmcert

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestEKFacts(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	middle := tpmlab.Sign(t, root, "middle", nil)
	key := tpmlab.NewP256(t)
	leaf := tpmlab.EKCertificate(t, middle, key.Public(), nil)
	facts, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), root)), tpmlab.Time, leaf, middle.Cert)
	testkit.NoError(t, err)
	digest, err := csr.SPKIHash(key.Public())
	testkit.NoError(t, err)
	switch {
	case facts.Identity != digestIdentity("ek", digest) || facts.Digest != digest || !key.PublicKey.Equal(facts.PublicKey):
		t.Errorf("identity %s", facts.Identity)
	case facts.Source != EKFromCertificate || facts.Profile != "TCG EK" || len(facts.Chain) != 3 || facts.Tolerances != nil:
		t.Errorf("%+v", facts)
	case facts.Directory.Vendor != "IFX" || facts.Specification.String() != "2.0 level 0 revision 138":
		t.Errorf("%+v, %v", facts.Directory, facts.Specification)
	}
}

// Each departure from the profile is refused with its check, and each that has a
// tolerance passes with that one and says so.
func TestEKProfiles(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	ecc, rsaKey := tpmlab.NewP256(t).Public(), rsaTestKeys()[0].Public()
	withoutDirectory := func(c *x509.Certificate) { c.ExtraExtensions = c.ExtraExtensions[1:] }
	cases := []struct {
		name     string
		key      crypto.PublicKey
		edit     func(*x509.Certificate)
		want     refusal.Check
		tolerate func(*EKProfile) // nil: nothing heals it
		used     string
	}{
		{"CA", ecc, func(c *x509.Certificate) { c.IsCA = true }, checkCertificateCA, nil, ""},
		{"no basic constraints", ecc, func(c *x509.Certificate) { c.BasicConstraintsValid = false }, checkCertificateExtension,
			func(p *EKProfile) { p.NoBasicConstraints = true }, "NoBasicConstraints"},
		{"no extended key usage", ecc, func(c *x509.Certificate) { c.UnknownExtKeyUsage = nil }, checkCertificateExtKeyUsage,
			func(p *EKProfile) { p.NoExtKeyUsage = true }, "NoExtKeyUsage"},
		{"AK's extended key usage", ecc, func(c *x509.Certificate) {
			c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, asn1.ObjectIdentifier{2, 23, 133, 8, 3})
		}, checkCertificateExtKeyUsage, nil, ""},
		{"platform certificate", ecc, func(c *x509.Certificate) {
			c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{2, 23, 133, 8, 2}}
		}, checkCertificateExtKeyUsage, nil, ""},
		{"EK and platform certificate", ecc, func(c *x509.Certificate) {
			c.UnknownExtKeyUsage = append(c.UnknownExtKeyUsage, asn1.ObjectIdentifier{2, 23, 133, 8, 2})
		}, checkCertificateExtKeyUsage, nil, ""},
		{"attributes twice", ecc, func(c *x509.Certificate) {
			c.ExtraExtensions[0].Value = tpmlab.Seq(tpmlab.DirectoryName([]tpmlab.Attribute{model, model, manufacturer, version}))
		}, checkSubjectAltName, nil, ""},
		{"a specification cut short", ecc, func(c *x509.Certificate) { c.ExtraExtensions[1].Value = []byte{0x30, 2, 0x30, 0} }, checkSpecification, nil, ""},
		{"TLS client", ecc, func(c *x509.Certificate) {
			c.UnknownExtKeyUsage, c.ExtKeyUsage = nil, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}, checkCertificateExtKeyUsage, nil, ""},
		{"AK's key usage", rsaKey, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, checkCertificateKeyUsage, nil, ""},
		{"a CA's key usage", rsaKey, func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCertSign }, checkCertificateKeyUsage, nil, ""},
		{"RSA key agreement", rsaKey, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement }, checkCertificateKeyUsage, nil, ""},
		{"no key usage", rsaKey, func(c *x509.Certificate) { c.KeyUsage = 0 }, checkCertificateKeyUsage,
			func(p *EKProfile) { p.NoKeyUsage = true }, "NoKeyUsage"},
		{"ECC key encipherment", ecc, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }, checkCertificateKeyUsage,
			func(p *EKProfile) { p.KeyEnciphermentOfECC = true }, "KeyEnciphermentOfECC"},
		{"no directory name", ecc, withoutDirectory, checkSubjectAltName, func(p *EKProfile) { p.NoDirectoryName = true }, "NoDirectoryName"},
		{"no version", ecc, func(c *x509.Certificate) { c.ExtraExtensions[0] = tpmlab.EKDirectory("id:49465800", "SLB9670", "") },
			checkSubjectAltName, func(p *EKProfile) { p.NoDirectoryName = true }, "NoDirectoryName"},
		{"TPM 1.2", ecc, func(c *x509.Certificate) { c.ExtraExtensions[1] = tpmlab.Specification("1.2", 2, 116) },
			checkSpecification, func(p *EKProfile) { p.TPM12Specification = true }, "TPM12Specification"},
		{"TPM 3.0", ecc, func(c *x509.Certificate) { c.ExtraExtensions[1] = tpmlab.Specification("3.0", 0, 1) }, checkSpecification, nil, ""},
		{"unknown critical extension", ecc, func(c *x509.Certificate) {
			c.ExtraExtensions = append(c.ExtraExtensions, criticalExtension())
		}, checkCertificateExtension, nil, ""},
		{"expired", ecc, func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(-time.Second) }, checkCertificateExpired,
			func(p *EKProfile) { p.InsecureAllowExpiredEK = true }, "InsecureAllowExpiredEK"},
		{"not yet valid", ecc, func(c *x509.Certificate) { c.NotBefore = tpmlab.Time.Add(time.Second) }, checkCertificateNotYetValid, nil, ""},
		{"P-224", &mustECDSA(elliptic.P224()).PublicKey, nil, refusal.Check("tpm-key-strength"), nil, ""},
	}
	everything := EKProfile{Name: "all but the extended key usage", Encoding: EKEncoding{NVPadding: true, TCGHeader: true, RSAESOAEPKey: true}, TPM12Specification: true, NoKeyUsage: true,
		NoDirectoryName: true, NoBasicConstraints: true, KeyEnciphermentOfECC: true, InsecureAllowSHA1Links: true, InsecureAllowExpiredEK: true}
	for _, c := range cases {
		leaf := tpmlab.EKCertificate(t, root, c.key, c.edit)
		_, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), root)), tpmlab.Time, leaf)
		wantEKCheck(t, c.name, err, c.want, "")
		if c.tolerate == nil {
			_, err := verifyAt(ekVerifierOf(t, trusting(everything, root)), tpmlab.Time, leaf)
			wantEKCheck(t, c.name+" with every tolerance", err, c.want, "")
			continue
		}
		p := EKProfileTCG()
		c.tolerate(&p)
		facts, err := verifyAt(ekVerifierOf(t, trusting(p, root)), tpmlab.Time, leaf)
		if err != nil || !slices.Equal(facts.Tolerances, []string{c.used}) {
			t.Errorf("%s with its tolerance: %+v, %v", c.name, facts, err)
		}
	}
}

func TestEKProfileRequirements(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	bare := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) { c.ExtraExtensions = c.ExtraExtensions[:1] })
	p := EKProfileTCG()
	p.RequireSpecification = true
	_, err := verifyAt(ekVerifierOf(t, trusting(p, root)), tpmlab.Time, bare)
	wantEKCheck(t, "specification", err, checkSpecification, "none")
	p = EKProfileTCG()
	p.Extensions = []oid.OID{oid.KubernetesNodeProviderIdentifier}
	_, err = verifyAt(ekVerifierOf(t, trusting(p, root)), tpmlab.Time, bare)
	wantEKCheck(t, "extension", err, checkCertificateExtension, "no extension 1.3.6.1.4.1.11129.2.1.21")
}

// Configurations that would refuse or accept by accident are errors, each naming its
// field.
func TestNewEKVerifier(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	with := func(edit func(*EKIssuer)) EKVerifierConfig {
		i := EKIssuer{Roots: []*x509.Certificate{root.Cert}, Profile: EKProfileTCG()}
		edit(&i)
		return EKVerifierConfig{Issuers: []EKIssuer{i}}
	}
	denying := func(d DeniedTPM) EKVerifierConfig {
		c := with(func(*EKIssuer) {})
		c.Denied = []DeniedTPM{d}
		return c
	}
	for want, c := range map[string]EKVerifierConfig{
		"no Issuers, Allowed":                       {},
		"no Issuers, want at least one with Denied": {Allowed: []attest.Identity{allZero}, Denied: []DeniedTPM{{Vendor: "IFX", Last: 1, Reason: "r"}}},
		"RequireCRL with InsecureAllowExpiredEK": with(func(i *EKIssuer) {
			i.CRLs, i.RequireCRL, i.Profile.InsecureAllowExpiredEK = &CRLStore{}, true, true
		}),
		"no roots":                            with(func(i *EKIssuer) { i.Roots = nil }),
		"issuer 0: no roots":                  with(func(i *EKIssuer) { i.Roots, i.CRLs = nil, &CRLStore{} }),
		"nil certificate among Roots":         with(func(i *EKIssuer) { i.Roots = append(i.Roots, nil) }),
		"nil certificate among Intermediates": with(func(i *EKIssuer) { i.Intermediates = append(i.Intermediates, nil) }),
		"without a name":                      with(func(i *EKIssuer) { i.Profile = EKProfile{} }),
		"asks for nothing": with(func(i *EKIssuer) {
			i.Profile = EKProfile{Name: "x", NoExtKeyUsage: true, NoKeyUsage: true, NoDirectoryName: true}
		}),
		"an object identifier":    with(func(i *EKIssuer) { i.Profile.Extensions = []oid.OID{"1.3.6.1.4.1.11129.2.1.21"} }),
		"RequireCRL without CRLs": with(func(i *EKIssuer) { i.RequireCRL = true }),
		"ek-identity":             {Allowed: []attest.Identity{"ak:sha256:00"}},
		"no Vendor":               denying(DeniedTPM{Last: 1, Reason: "r"}),
		"a range from 0.2":        denying(DeniedTPM{Vendor: "IFX", First: 2, Last: 1, Reason: "r"}),
		"no Reason":               denying(DeniedTPM{Vendor: "IFX"}),
	} {
		t.Run(want, func(t *testing.T) {
			_, err := NewEKVerifier(c)
			if !errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

const allZero = attest.Identity("ek:sha256:0000000000000000000000000000000000000000000000000000000000000000")

func TestEKIdentityInAllowList(t *testing.T) {
	allowing := func(id attest.Identity) error {
		_, err := NewEKVerifier(EKVerifierConfig{Allowed: []attest.Identity{id}})
		return err
	}
	if err := allowing(allZero); err != nil {
		t.Error(err)
	}
	for _, id := range []attest.Identity{"", "ek:sha256:", allZero[1:], allZero + "0", allZero[:len(allZero)-1], "ek:sha512:" + allZero[10:], "ak" + allZero[2:],
		attest.Identity(strings.Replace(string(allZero), "0", "A", 1)), attest.Identity(strings.Replace(string(allZero), "0", "g", 1))} {
		if err := allowing(id); !errors.Is(err, checkEKIdentity) || !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// One EK: a certificate or a canonical key, never both or neither.
func TestPresentedEKSources(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	key := tpmlab.NewP256(t)
	leaf := tpmlab.EKCertificate(t, root, key.Public(), nil)
	spki, err := csr.CanonicalSPKI(key.Public())
	testkit.NoError(t, err)
	if _, err := ParseEKPresented([][]byte{leaf.Raw}, spki); !errors.Is(err, checkEKSources) {
		t.Errorf("both: %v", err)
	}
	if _, err := ParseEKPresented(nil, nil); !errors.Is(err, checkEKSources) {
		t.Errorf("neither: %v", err)
	}
	a, err := ParseEKPresented([][]byte{leaf.Raw}, nil)
	b, err2 := ParseEKPresented(nil, spki)
	if err != nil || err2 != nil || a.ek.Digest != b.ek.Digest {
		t.Errorf("%v, %v: two digests of one key", err, err2)
	}
	for n := range spki {
		changed := bytes.Clone(spki)
		changed[n] ^= 1
		if _, err := ParseEKPresented(nil, changed); err == nil {
			t.Errorf("byte %d changed, and still an EK", n)
		}
	}
	if _, err := ParseEKPresented(nil, append(bytes.Clone(spki), 0)); !errors.Is(err, checkEKKeyEncoding) {
		t.Errorf("trailing byte: %v", err)
	}
	if _, err := ParseEKPresented(nil, make([]byte, der.MaxPublicSize+1)); !errors.Is(err, der.CheckSize) {
		t.Errorf("size: %v", err)
	}
}

// platformFunc is a PlatformEK made of a function.
type platformFunc func(*csr.Machine) ([]crypto.PublicKey, error)

func (f platformFunc) EndorsementKeys(_ context.Context, m *csr.Machine) ([]crypto.PublicKey, error) {
	return f(m)
}

// An EK without a chain is trusted by the list and by the platform, and by nothing
// else.
func TestEKWithoutChain(t *testing.T) {
	key, other := tpmlab.NewP256(t), tpmlab.NewP256(t)
	spki, err := csr.CanonicalSPKI(key.Public())
	testkit.NoError(t, err)
	p, err := ParseEKPresented(nil, spki)
	testkit.NoError(t, err)
	verify := func(c EKVerifierConfig, m *csr.Machine) (*EKFacts, error) {
		return verifyEKOf(t.Context(), ekVerifierOf(t, c), &sentEK{PublicKey: spki}, m, tpmlab.Time)
	}
	if facts, err := verify(EKVerifierConfig{Allowed: []attest.Identity{p.Identity()}}, nil); err != nil || facts.Source != EKFromAllowList {
		t.Errorf("allow-list: %+v, %v", facts, err)
	}
	if _, err := verify(EKVerifierConfig{Allowed: []attest.Identity{allZero}}, nil); !errors.Is(err, checkEKUntrusted) {
		t.Errorf("another on the list: %v", err)
	}
	stated := []crypto.PublicKey{other.Public(), key.Public()}
	platform := platformFunc(func(m *csr.Machine) ([]crypto.PublicKey, error) {
		switch m.ProviderID {
		case "aws:///i-1":
			return stated, nil
		case "aws:///down":
			return nil, errors.New("down")
		case "aws:///bad":
			return []crypto.PublicKey{"no key"}, nil
		}
		return nil, nil
	})
	c := EKVerifierConfig{Platform: platform}
	if facts, err := verify(c, &csr.Machine{ProviderID: "aws:///i-1"}); err != nil || facts.Source != EKFromPlatform {
		t.Errorf("platform: %+v, %v", facts, err)
	}
	for _, m := range []*csr.Machine{nil, {ProviderID: "aws:///i-2"}} {
		if _, err := verify(c, m); !errors.Is(err, checkEKUntrusted) {
			t.Errorf("machine %v: %v", m, err)
		}
	}
	for _, id := range []string{"aws:///down", "aws:///bad"} {
		if _, err := verify(c, &csr.Machine{ProviderID: id}); !errors.Is(err, refusal.ErrRetry) {
			t.Errorf("%s: %v", id, err)
		}
	}
	stated = stated[:1]
	if _, err := verify(c, &csr.Machine{ProviderID: "aws:///i-1"}); !errors.Is(err, checkEKUntrusted) {
		t.Errorf("the platform states another: %v", err)
	}
	if _, err := verifyEKOf(t.Context(), ekVerifierOf(t, c), nil, nil, tpmlab.Time); err == nil {
		t.Error("no EK was accepted")
	}
}

// A certificate under unknown roots does not hurt an EK that is on the list, and what
// it says is not taken over.
func TestEKCertificateOfListedEK(t *testing.T) {
	ours, theirs := tpmlab.Sign(t, nil, "ours", nil), tpmlab.Sign(t, nil, "theirs", nil)
	leaf := tpmlab.EKCertificate(t, theirs, tpmlab.NewP256(t).Public(), nil)
	p, err := ParseEKPresented([][]byte{leaf.Raw}, nil)
	testkit.NoError(t, err)
	c := trusting(EKProfileTCG(), ours)
	if _, err := verifyAt(ekVerifierOf(t, c), tpmlab.Time, leaf); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("not listed: %v", err)
	}
	c.Allowed = []attest.Identity{p.Identity()}
	facts, err := verifyAt(ekVerifierOf(t, c), tpmlab.Time, leaf)
	if err != nil || facts.Source != EKFromAllowList || facts.Directory != (DirectoryName{}) || facts.Chain != nil {
		t.Errorf("listed: %+v, %v", facts, err)
	}
}

// An EK comes from one source, and with a bounded number of certificates, whatever is
// in them.
func TestSourcesOfPresentedEKs(t *testing.T) {
	certificates := func(n int) [][]byte {
		all := make([][]byte, n)
		for i := range all {
			all[i] = []byte{0x30, 0}
		}
		return all
	}
	for name, c := range map[string]struct {
		certificates [][]byte
		ekPublic     []byte
		want         refusal.Check
	}{
		"neither":                     {nil, nil, checkEKSources},
		"both":                        {certificates(1), []byte{1, 2}, checkEKSources},
		"a certificate and one byte":  {certificates(1), []byte{1}, checkEKSources},
		"one byte":                    {nil, []byte{1}, checkEKKeyEncoding},
		"a certificate":               {certificates(1), nil, CheckCertificateEncoding},
		"as many as there may be":     {certificates(der.MaxCertificates), nil, CheckCertificateEncoding},
		"one more than there may be":  {certificates(der.MaxCertificates + 1), nil, refusal.Check("message-size")},
		"many more than there may be": {certificates(4 * der.MaxCertificates), nil, refusal.Check("message-size")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseEKPresented(c.certificates, c.ekPublic)
			tpmlab.ExpectCheck(t, err, c.want)
		})
	}
}
