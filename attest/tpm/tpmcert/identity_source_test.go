package tpmcert

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// ownOtherName is an AK certificate with the OtherName 1.2.3 "x".
func ownOtherName(t testing.TB, ca *tpmlab.CA) *x509.Certificate {
	return tpmlab.Sign(t, ca, "ak", func(c *x509.Certificate) {
		leafTemplate(c)
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17},
			Value: tpmlab.Seq(otherNameOf("\x2a\x03", []byte{0x0c, 1, 'x'}))})
	}).Cert
}

// An OtherName is its issuer's word: one issuer cannot certify the machines of another.
// Two whose identities could be the same are no configuration, and named ones have
// different identities.
func TestOtherNamesOfTwoIssuers(t *testing.T) {
	a, b := tpmlab.Sign(t, nil, "fleet A", nil), tpmlab.Sign(t, nil, "fleet B", nil)
	from := func(ca *tpmlab.CA, roots []*tpmlab.CA, sources ...IdentitySource) Issuer {
		i := Issuer{Profile: ProfileTCG()}
		i.Profile.Identity = append(sources, AKIdentity{})
		for _, r := range append([]*tpmlab.CA{ca}, roots...) {
			i.Roots = append(i.Roots, r.Cert)
		}
		return i
	}
	one, two := OtherNameIdentity{Types: []oid.OID{"\x2a\x03"}}, OtherNameIdentity{Types: []oid.OID{"\x2a\x04"}}
	named := func(name string) OtherNameIdentity { return OtherNameIdentity{Issuer: name} }
	both := OtherNameIdentity{Types: []oid.OID{"\x2a\x04", "\x2a\x03"}}
	for name, c := range map[string]struct {
		issuers []Issuer
		ok      bool
		want    [2]attest.Identity // of the certificates of A and B
	}{
		"any type under two roots":             {[]Issuer{from(a, nil, OtherNameIdentity{}), from(b, nil, OtherNameIdentity{})}, false, [2]attest.Identity{}},
		"one type and any":                     {[]Issuer{from(a, nil, one), from(b, nil, OtherNameIdentity{})}, false, [2]attest.Identity{}},
		"any and one type":                     {[]Issuer{from(a, nil, OtherNameIdentity{}), from(b, nil, two)}, false, [2]attest.Identity{}},
		"one type among others":                {[]Issuer{from(a, nil, one), from(b, nil, both)}, false, [2]attest.Identity{}},
		"by pointer":                           {[]Issuer{from(a, nil, &one), from(b, nil, &both)}, false, [2]attest.Identity{}},
		"the second source of one":             {[]Issuer{from(a, nil, GCEIdentity{}, one), from(b, nil, both)}, false, [2]attest.Identity{}},
		"one name for two":                     {[]Issuer{from(a, nil, named("fleet")), from(b, nil, named("fleet"))}, false, [2]attest.Identity{}},
		"a root more in the first":             {[]Issuer{from(a, []*tpmlab.CA{b}, one), from(b, nil, one)}, false, [2]attest.Identity{}},
		"a root more in the second":            {[]Issuer{from(a, nil, one), from(b, []*tpmlab.CA{a}, one)}, false, [2]attest.Identity{}},
		"a bad name":                           {[]Issuer{from(a, nil, named("fleet/a"))}, false, [2]attest.Identity{}},
		"a colon in a name":                    {[]Issuer{from(a, nil, named("fleet:"))}, false, [2]attest.Identity{}},
		"a name of 64":                         {[]Issuer{from(a, nil, named(strings.Repeat("a", 64)))}, false, [2]attest.Identity{}},
		"one issuer, two roots":                {[]Issuer{from(a, []*tpmlab.CA{b}, one)}, true, [2]attest.Identity{"othername:1.2.3:DAF4", "othername:1.2.3:DAF4"}},
		"two profiles of one authority":        {[]Issuer{from(a, []*tpmlab.CA{b}, one), from(b, []*tpmlab.CA{a}, one)}, true, [2]attest.Identity{"othername:1.2.3:DAF4", "othername:1.2.3:DAF4"}},
		"different types":                      {[]Issuer{from(a, nil, one), from(b, nil, two)}, true, [2]attest.Identity{"othername:1.2.3:DAF4", "ak:"}},
		"two names":                            {[]Issuer{from(a, nil, named("fleet-a")), from(b, nil, named("fleet.2"))}, true, [2]attest.Identity{"othername:fleet-a/1.2.3:DAF4", "othername:fleet.2/1.2.3:DAF4"}},
		"one of them named":                    {[]Issuer{from(a, nil, named("a")), from(b, nil, one)}, true, [2]attest.Identity{"othername:a/1.2.3:DAF4", "othername:1.2.3:DAF4"}},
		"only one with OtherNames":             {[]Issuer{from(a, nil, one), from(b, nil)}, true, [2]attest.Identity{"othername:1.2.3:DAF4", "ak:"}},
		"two without a type in common, by two": {[]Issuer{from(a, nil, one, two), from(b, nil)}, true, [2]attest.Identity{"othername:1.2.3:DAF4", "ak:"}},
	} {
		t.Run(name, func(t *testing.T) {
			for n, ca := range []*tpmlab.CA{a, b} {
				if strings.HasPrefix(name, "a ") && n == 1 {
					continue
				}
				got, err := VerifyAKCertificate(c.issuers, [][]byte{ownOtherName(t, ca).Raw}, tpmlab.Time)
				if !c.ok {
					if !errors.Is(err, refusal.CheckConfig) {
						t.Errorf("got %+v, %v, want an error of the configuration", got, err)
					}
					continue
				}
				if err != nil || !strings.HasPrefix(string(got.Machine), string(c.want[n])) {
					t.Fatalf("got %+v, %v, want %s", got, err, c.want[n])
				}
				if _, err := asListed(got.Machine); err != nil {
					t.Error(err)
				}
			}
			if err := checkScopes(c.issuers); (err == nil) != c.ok {
				t.Error(err)
			}
		})
	}
}

func TestParseOtherNameIdentity(t *testing.T) {
	for s, ok := range map[string]bool{
		"othername:1.2.3:DAF4":                                 true,
		"othername:a/1.2.3:DAF4":                               true,
		"othername:oem-1.example/1.2.3:DAF4":                   true,
		"othername:" + strings.Repeat("a", 63) + "/1.2.3:DAF4": true,
		"othername:" + strings.Repeat("a", 64) + "/1.2.3:DAF4": false,
		"othername:/1.2.3:DAF4":                                false,
		"othername:A/1.2.3:DAF4":                               false,
		"othername:a_b/1.2.3:DAF4":                             false,
		"othername:a/b/1.2.3:DAF4":                             false,
		"othername:a/1.2.3":                                    false,
		"othername:1.2.3":                                      false,
		"othername:1.2.3:":                                     false,
		"othername:1.2.03:DAF4":                                false,
		"othername:9.2.3:DAF4":                                 false,
		"othername:1.2.3:DAF4=":                                false,
		"othername:1.2.3:DAF":                                  false, // bits that are not there
		"othername:1.2.3:DA\nF4":                               false,
		"othername:1.2.3:DA\rF4":                               false,
		"othername:az09.-/1.2.3:DAF4":                          true,
		"othername:`/1.2.3:DAF4":                               false,
		"othername:{/1.2.3:DAF4":                               false,
		"othername:://1.2.3:DAF4":                              false,
		"a:x":                                                  true,
		"az-09:x":                                              true,
		"a_b:x":                                                false,
		"a/:x":                                                 false,
		"a`:x":                                                 false,
		"a{:x":                                                 false,
		"1a:x":                                                 false,
		"-a:x":                                                 false,
		":x":                                                   false,
		"othername::DAF4":                                      false,
	} {
		t.Run(s, func(t *testing.T) {
			id, err := attest.ParseIdentity(s)
			if (err == nil) != ok || err != nil && !errors.Is(err, attest.CheckIdentity) || err == nil && string(id) != s {
				t.Errorf("%q: %q, %v", s, id, err)
			}
		})
	}
}

// A profile's list cannot be changed after the verifier was made.
func TestEKProfileIsCopied(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	p := EKProfileTCG()
	p.Extensions = []oid.OID{oid.SubjectAltName}
	v := ekVerifierOf(t, trusting(p, root))
	leaf := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), nil)
	p.Extensions[0] = oid.KubernetesNodeProviderIdentifier
	if _, err := verifyAt(v, tpmlab.Time, leaf); err != nil {
		t.Errorf("the caller's change counts: %v", err)
	}
}

// A refused extended key usage stands in the error, so that a profile can be written.
func TestUnknownExtKeyUsageIsNamed(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	azure := func(c *x509.Certificate) {
		c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{1, 3, 6, 1, 4, 1, 311, 10, 3, 12}}
	}
	ek := tpmlab.EKCertificate(t, root, tpmlab.NewP256(t).Public(), func(c *x509.Certificate) {
		azure(c)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	_, err := verifyAt(ekVerifierOf(t, trusting(EKProfileTCG(), root)), tpmlab.Time, ek)
	ak := tpmlab.Sign(t, root, "ak", func(c *x509.Certificate) { leafTemplate(c); azure(c) }).Cert
	_, akErr := VerifyAKCertificate([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: ProfileTCG()}}, [][]byte{ak.Raw}, tpmlab.Time)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"EK": {err, "1.3.6.1.5.5.7.3.1, 1.3.6.1.4.1.311.10.3.12"},
		"AK": {akErr, "1.3.6.1.4.1.311.10.3.12"},
	} {
		var e *refusal.Error
		if !errors.As(c.err, &e) || e.Check != checkCertificateExtKeyUsage || e.Got != c.want {
			t.Errorf("%s: got %v, want %s in it", name, c.err, c.want)
		}
	}
	bad := &x509.Certificate{Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: bytes.Repeat([]byte{0x30}, 2)}}}
	var e *refusal.Error
	if err := checkExtKeyUsage(bad, ekUsages, true, "any"); !errors.As(err, &e) || e.Check != checkCertificateExtKeyUsage || e.Got != "a bad extension" {
		t.Error(err)
	}
}

// Each smallest change of an extension is refused, also one that crypto/x509 lets not
// through; and where none is wanted, any is.
func TestExtKeyUsageExtensions(t *testing.T) {
	ak, own := tlv(6, string(oid.TCGKpAIKCertificate)), tlv(6, "\x2a\x03")
	aks := []oid.OID{oid.TCGKpAIKCertificate}
	for name, c := range map[string]struct {
		value    string // "" for no extension
		wanted   []oid.OID
		optional bool
		want     string // that was wanted, "" for none refused
	}{
		"good":                   {tlv(0x30, ak), aks, false, ""},
		"next to another":        {tlv(0x30, own+ak), aks, false, ""},
		"a SET":                  {tlv(0x31, ak), aks, true, "one of 2.23.133.8.3 (an AK's), by profile any"},
		"something after it":     {tlv(0x30, ak) + "\x05\x00", aks, true, "one of 2.23.133.8.3 (an AK's), by profile any"},
		"no identifier":          {tlv(0x30, ak+tlv(4, "\x2a\x03")), aks, true, "one of 2.23.133.8.3 (an AK's), by profile any"},
		"none":                   {"", aks, false, "one of 2.23.133.8.3 (an AK's), by profile any"},
		"none, optional":         {"", aks, true, ""},
		"none is wanted":         {"", nil, true, ""},
		"an AK's, none wanted":   {tlv(0x30, ak), nil, true, "none, by profile any"},
		"one's own, none wanted": {tlv(0x30, own), nil, true, "none, by profile any"},
	} {
		t.Run(name, func(t *testing.T) {
			cert := &x509.Certificate{}
			if c.value != "" {
				cert.Extensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: []byte(c.value)}}
			}
			err := checkExtKeyUsage(cert, c.wanted, c.optional, "any")
			var e *refusal.Error
			if (c.want == "") != (err == nil) || err != nil && (!errors.As(err, &e) || e.Check != checkCertificateExtKeyUsage || e.Want != c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// tlv is DER of a short value.
func tlv(tag byte, value string) string { return string([]byte{tag, byte(len(value))}) + value }

// saying is a source of identities that always says the same.
type saying struct {
	id  attest.Identity
	err error
}

func (s saying) Kind() string { return s.id.Kind() }

func (s saying) Identify(*x509.Certificate) (attest.Identity, error) { return s.id, s.err }

// kindOfA is a source whose identities should be of the kind "a".
type kindOfA struct{ saying }

func (kindOfA) Kind() string { return "a" }

// The first identity counts, a source that fails is never passed over, and an identity
// has the kind of its source and a name.
func TestSourcesOfIdentity(t *testing.T) {
	down := errors.New("down")
	root := tpmlab.Sign(t, nil, "root", nil)
	chain := [][]byte{tpmlab.Sign(t, root, "leaf", leafTemplate).Cert.Raw}
	for name, c := range map[string]struct {
		sources []IdentitySource
		want    refusal.Check
		machine attest.Identity
	}{
		"the first":               {[]IdentitySource{saying{"a:1", nil}, saying{"b:2", nil}}, "", "a:1"},
		"the second":              {[]IdentitySource{saying{}, saying{"b:2", nil}, saying{"", down}}, "", "b:2"},
		"none":                    {[]IdentitySource{saying{}}, attest.CheckIdentity, ""},
		"one that fails":          {[]IdentitySource{saying{"", down}, AKIdentity{}}, attest.CheckIdentity, ""},
		"fails, with an identity": {[]IdentitySource{saying{"a:1", down}, AKIdentity{}}, attest.CheckIdentity, ""},
		"fails with its check":    {[]IdentitySource{saying{"", attest.NotMember("gone")}, AKIdentity{}}, attest.CheckMembership, ""},
		"no colon":                {[]IdentitySource{saying{"a", nil}}, attest.CheckIdentity, ""},
		"no kind":                 {[]IdentitySource{saying{":a", nil}}, attest.CheckIdentity, ""},
		"no name":                 {[]IdentitySource{saying{"a:", nil}}, attest.CheckIdentity, ""},
		"a colon":                 {[]IdentitySource{saying{":", nil}}, attest.CheckIdentity, ""},
		"two colons":              {[]IdentitySource{saying{"a:b:c", nil}}, "", "a:b:c"},
		"its kind":                {[]IdentitySource{kindOfA{saying{"a:1", nil}}}, "", "a:1"},
		"another kind":            {[]IdentitySource{kindOfA{saying{"b:1", nil}}}, attest.CheckIdentity, ""},
	} {
		t.Run(name, func(t *testing.T) {
			profile := ProfileTCG()
			profile.Identity = c.sources
			got, err := VerifyAKCertificate([]Issuer{{Roots: []*x509.Certificate{root.Cert}, Profile: profile}}, chain, tpmlab.Time)
			if (err == nil) != (c.want == "") || c.want != "" && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if err == nil && got.Machine != c.machine {
				t.Errorf("machine %s", got.Machine)
			}
		})
	}
}
