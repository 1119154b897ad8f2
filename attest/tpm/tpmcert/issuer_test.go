package tpmcert

import (
	"crypto/x509"

	"encoding/asn1"
	"errors"
	"fmt"

	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
)

func leafTemplate(c *x509.Certificate) {
	c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature
	c.UnknownExtKeyUsage = []asn1.ObjectIdentifier{{2, 23, 133, 8, 3}}
}

func presentedOf(t testing.TB, chain ...*tpmlab.CA) *AKPresented {
	t.Helper()
	var der [][]byte
	for _, c := range chain {
		der = append(der, c.Cert.Raw)
	}
	p, err := ParseAKPresented(der)
	testkit.NoError(t, err)
	return p
}

func issuerOf(t testing.TB, roots ...*tpmlab.CA) *issuer {
	t.Helper()
	i := Issuer{Profile: ProfileTCG()}
	for _, r := range roots {
		i.Roots = append(i.Roots, r.Cert)
	}
	made, err := newIssuer(&i, newLinkMemory())
	testkit.NoError(t, err)
	return made
}

// A remembered intermediate saves work and changes no verdict: not after its end
// or its root's, not below other roots, not for a leaf that it did not sign.
func TestRememberedIntermediates(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(2 * time.Hour) })
	middle := tpmlab.Sign(t, root, "middle", func(c *x509.Certificate) { c.NotAfter = tpmlab.Time.Add(4 * time.Hour) })
	leaf := tpmlab.Sign(t, middle, "leaf", leafTemplate)
	p := presentedOf(t, leaf, middle)
	i := issuerOf(t, root)
	for range 2 { // the second time from memory
		chain, err := i.holds(p, tpmlab.Time)
		if err != nil || len(chain) != 3 || len(i.known.known) != 1 {
			t.Fatalf("chain of %d, %d remembered, %v", len(chain), len(i.known.known), err)
		}
	}
	if _, err := i.holds(p, tpmlab.Time.Add(3*time.Hour)); !errors.Is(err, checkCertificateExpired) {
		t.Errorf("after the root's end: %v", err)
	}
	if _, err := i.holds(p, tpmlab.Time.Add(5*time.Hour)); !errors.Is(err, checkCertificateExpired) {
		t.Errorf("after the intermediate's end: %v", err)
	}
	if _, err := i.holds(p, tpmlab.Time.Add(-25*time.Hour)); !errors.Is(err, checkCertificateNotYetValid) {
		t.Errorf("before the beginning: %v", err)
	}
	if _, err := issuerOf(t, tpmlab.Sign(t, nil, "root", nil)).holds(p, tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("below another root of that name: %v", err)
	}
	imposter := tpmlab.Sign(t, tpmlab.Sign(t, root, "middle", nil), "leaf", leafTemplate)
	if _, err := i.holds(presentedOf(t, imposter, middle), tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("a leaf of another key of that name: %v", err)
	}
	if _, err := i.holds(p, tpmlab.Time); err != nil {
		t.Errorf("the good one afterwards: %v", err)
	}
}

// Path lengths are counted with the leaf in place, from memory too, and name
// constraints are never skipped.
func TestConstraintsAboveTheIntermediate(t *testing.T) {
	short := tpmlab.Sign(t, nil, "root", func(c *x509.Certificate) { c.MaxPathLenZero = true })
	middle := tpmlab.Sign(t, short, "middle", nil)
	leaf := tpmlab.Sign(t, middle, "leaf", leafTemplate)
	i := issuerOf(t, short)
	for range 2 {
		if _, err := i.holds(presentedOf(t, leaf, middle), tpmlab.Time); !errors.Is(err, CheckCertificateChain) {
			t.Errorf("path length: %v", err)
		}
	}
	if len(i.known.known) != 0 {
		t.Error("a chain that does not hold was remembered")
	}
	narrow := tpmlab.Sign(t, nil, "root", func(c *x509.Certificate) {
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"example.com"}
	})
	middle = tpmlab.Sign(t, narrow, "middle", nil)
	i = issuerOf(t, narrow)
	for _, name := range []string{"a.example.com", "a.example.net", "b.example.com", "b.example.net"} { // from memory too
		want := strings.HasSuffix(name, ".com")
		leaf := tpmlab.Sign(t, middle, "leaf", func(c *x509.Certificate) { leafTemplate(c); c.DNSNames = []string{name} })
		if _, err := i.holds(presentedOf(t, leaf, middle), tpmlab.Time); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Memory is bounded, whatever nodes send.
func TestMemoryIsBounded(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	i := issuerOf(t, root)
	for n := range maxKnownCAs + 50 {
		middle := tpmlab.Sign(t, root, fmt.Sprint("middle ", n), nil)
		if _, err := i.holds(presentedOf(t, tpmlab.Sign(t, middle, "leaf", leafTemplate), middle), tpmlab.Time); err != nil {
			t.Fatal(err)
		}
	}
	if len(i.known.known) != maxKnownCAs {
		t.Errorf("%d remembered, want %d", len(i.known.known), maxKnownCAs)
	}
	if len(i.known.leaves) != maxKnownCAs+50 {
		t.Errorf("%d leaves remembered, want each", len(i.known.leaves))
	}
	for n := range maxKnownLeaves {
		i.known.add(linkID{byte(n), byte(n >> 8)}, nil, true)
	}
	if len(i.known.leaves) != maxKnownLeaves {
		t.Errorf("%d leaves remembered, want %d", len(i.known.leaves), maxKnownLeaves)
	}
}

// The certificates that come along are one chain: leaf first, every one needed.
func TestPresentedChains(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	upper := tpmlab.Sign(t, root, "upper", nil)
	lower := tpmlab.Sign(t, upper, "lower", nil)
	leaf := tpmlab.Sign(t, lower, "leaf", leafTemplate)
	other := tpmlab.Sign(t, root, "other", nil)
	i := issuerOf(t, root)
	for name, c := range map[string]struct {
		chain []*tpmlab.CA
		want  error
	}{
		"good":             {[]*tpmlab.CA{leaf, lower, upper}, nil},
		"with the root":    {[]*tpmlab.CA{leaf, lower, upper, root}, checkCertificateOrder},
		"swapped":          {[]*tpmlab.CA{leaf, upper, lower}, checkCertificateOrder},
		"one missing":      {[]*tpmlab.CA{leaf, lower}, CheckCertificateChain},
		"one too many":     {[]*tpmlab.CA{leaf, lower, upper, other}, checkCertificateOrder},
		"the leaf twice":   {[]*tpmlab.CA{leaf, leaf, lower, upper}, checkCertificateOrder},
		"alone":            {[]*tpmlab.CA{leaf}, CheckCertificateChain},
		"directly by root": {[]*tpmlab.CA{tpmlab.Sign(t, root, "leaf", leafTemplate)}, nil},
		"self-signed":      {[]*tpmlab.CA{tpmlab.Sign(t, nil, "leaf", leafTemplate)}, CheckCertificateChain},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := i.holds(presentedOf(t, c.chain...), tpmlab.Time)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
	garbled := presentedOf(t, leaf)
	garbled.above = [][]byte{{0x30, 0}}
	if _, err := i.holds(garbled, tpmlab.Time); !errors.Is(err, CheckCertificateEncoding) {
		t.Errorf("garbage above the leaf: %v", err)
	}
	if _, err := ParseAKPresented([][]byte{{0x30, 0}}); !errors.Is(err, CheckCertificateEncoding) {
		t.Errorf("garbage for a leaf: %v", err)
	}
	if _, err := ParseAKPresented(nil); !errors.Is(err, checkCertificateMissing) {
		t.Errorf("nothing: %v", err)
	}
}

// An issuer that says too little is refused when it is made.
func TestIssuersAreComplete(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	for name, c := range map[string]struct {
		change func(*Issuer)
		ok     bool
	}{
		"no roots":                     {func(i *Issuer) { i.Roots = nil }, false},
		"a nil root":                   {func(i *Issuer) { i.Roots = []*x509.Certificate{nil} }, false},
		"a nil root after another":     {func(i *Issuer) { i.Roots = []*x509.Certificate{root.Cert, nil} }, false},
		"a nil intermediate":           {func(i *Issuer) { i.Intermediates = []*x509.Certificate{nil} }, false},
		"an intermediate":              {func(i *Issuer) { i.Intermediates = []*x509.Certificate{root.Cert} }, true},
		"zero profile":                 {func(i *Issuer) { i.Profile = Profile{} }, false},
		"no name":                      {func(i *Issuer) { i.Profile.Name = "" }, false},
		"no key usage":                 {func(i *Issuer) { i.Profile.KeyUsage = 0 }, false},
		"no key usage, let through":    {func(i *Issuer) { i.Profile.KeyUsage, i.Profile.InsecureAllowAnyKeyUsage = 0, true }, true},
		"a key usage all the same":     {func(i *Issuer) { i.Profile.InsecureAllowAnyKeyUsage = true }, true},
		"both signing key usages":      {func(i *Issuer) { i.Profile.KeyUsage |= x509.KeyUsageContentCommitment }, true},
		"no EKU":                       {func(i *Issuer) { i.Profile.ExtKeyUsage = nil }, false},
		"no EKU, let through":          {func(i *Issuer) { i.Profile.ExtKeyUsage, i.Profile.NoExtKeyUsage = nil, true }, true},
		"an EKU that need not be":      {func(i *Issuer) { i.Profile.NoExtKeyUsage = true }, true},
		"no identity":                  {func(i *Issuer) { i.Profile.Identity = nil }, false},
		"a nil identity":               {func(i *Issuer) { i.Profile.Identity = []IdentitySource{nil} }, false},
		"a nil identity after another": {func(i *Issuer) { i.Profile.Identity = []IdentitySource{AKIdentity{}, nil} }, false},
		"the EK's key usage alone":     {func(i *Issuer) { i.Profile.KeyUsage = x509.KeyUsageKeyEncipherment }, false},
		"the EK's, and let through": {func(i *Issuer) {
			i.Profile.KeyUsage, i.Profile.InsecureAllowAnyKeyUsage = x509.KeyUsageKeyEncipherment, true
		}, false},
		"identifiers in every field": {func(i *Issuer) {
			i.Profile.Extensions, i.Profile.Policies = []oid.OID{oid.SubjectAltName}, []oid.OID{oid.TCGCapVerifiedTPMFixed}
			i.Profile.Identity = []IdentitySource{OtherNameIdentity{Types: []oid.OID{oid.PermanentIdentifier}}}
		}, true},
		"a dotted extended key usage": {func(i *Issuer) { i.Profile.ExtKeyUsage = append(i.Profile.ExtKeyUsage, "2.23.133.8.3") }, false},
		"an empty extended key usage": {func(i *Issuer) { i.Profile.ExtKeyUsage = append(i.Profile.ExtKeyUsage, "") }, false},
		"a dotted extension":          {func(i *Issuer) { i.Profile.Extensions = []oid.OID{"2.5.29.17"} }, false},
		"a dotted policy":             {func(i *Issuer) { i.Profile.Policies = []oid.OID{"2.23.133.11.1.1"} }, false},
		"a dotted OtherName": {func(i *Issuer) {
			i.Profile.Identity = []IdentitySource{OtherNameIdentity{Types: []oid.OID{"1.3.6.1.5.5.7.8.3"}}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) { checkIssuer(t, root, c.change, c.ok) })
	}
	for _, bit := range []x509.KeyUsage{x509.KeyUsageKeyEncipherment, x509.KeyUsageDataEncipherment, x509.KeyUsageKeyAgreement,
		x509.KeyUsageCertSign, x509.KeyUsageCRLSign, x509.KeyUsageEncipherOnly, x509.KeyUsageDecipherOnly} {
		t.Run(keyUsageText(bit), func(t *testing.T) {
			checkIssuer(t, root, func(i *Issuer) { i.Profile.KeyUsage |= bit }, false)
		})
	}
}

func checkIssuer(t *testing.T, root *tpmlab.CA, change func(*Issuer), ok bool) {
	t.Helper()
	i := Issuer{Roots: []*x509.Certificate{root.Cert}, Profile: ProfileTCG()}
	change(&i)
	if _, err := newIssuer(&i, newLinkMemory()); (err == nil) != ok {
		t.Errorf("got %v, want accepted: %t", err, ok)
	}
}

// Every rule of a profile bites, each with its check.
func TestProfileRules(t *testing.T) {
	root := tpmlab.Sign(t, nil, "root", nil)
	tcg, google := ProfileTCG(), ProfileGoogle()
	withName := ProfileMicrosoftAIK()
	eku := func(ids ...asn1.ObjectIdentifier) func(*x509.Certificate) {
		return func(c *x509.Certificate) { leafTemplate(c); c.UnknownExtKeyUsage = ids }
	}
	for name, c := range map[string]struct {
		profile *Profile
		edit    func(*x509.Certificate)
		want    error
	}{
		"good":                      {&tcg, leafTemplate, nil},
		"CA":                        {&tcg, func(c *x509.Certificate) { leafTemplate(c); c.IsCA = true }, checkCertificateCA},
		"no key usage":              {&tcg, func(c *x509.Certificate) { leafTemplate(c); c.KeyUsage = 0 }, checkCertificateKeyUsage},
		"key encipherment too":      {&tcg, func(c *x509.Certificate) { leafTemplate(c); c.KeyUsage |= x509.KeyUsageKeyEncipherment }, checkCertificateKeyUsage},
		"key agreement too":         {&tcg, func(c *x509.Certificate) { leafTemplate(c); c.KeyUsage |= x509.KeyUsageKeyAgreement }, checkCertificateKeyUsage},
		"no EKU":                    {&tcg, eku(), checkCertificateExtKeyUsage},
		"another EKU":               {&tcg, eku(asn1.ObjectIdentifier{1, 2, 3}), checkCertificateExtKeyUsage},
		"another EKU next to it":    {&tcg, eku(asn1.ObjectIdentifier{2, 23, 133, 8, 3}, asn1.ObjectIdentifier{1, 2, 3}), nil},
		"EK's EKU next to it":       {&tcg, eku(asn1.ObjectIdentifier{2, 23, 133, 8, 3}, asn1.ObjectIdentifier{2, 23, 133, 8, 1}), checkCertificateExtKeyUsage},
		"platform's EKU next to it": {&tcg, eku(asn1.ObjectIdentifier{2, 23, 133, 8, 3}, asn1.ObjectIdentifier{2, 23, 133, 8, 2}), checkCertificateExtKeyUsage},
		"no directory name":         {&withName, leafTemplate, checkSubjectAltName},
		"no instance identity":      {&google, eku(), checkCertificateExtension},
		"Google, another EKU":       {&google, eku(asn1.ObjectIdentifier{1, 2, 3}), checkCertificateExtKeyUsage},
	} {
		t.Run(name, func(t *testing.T) {
			p := presentedOf(t, tpmlab.Sign(t, root, "leaf", c.edit))
			err := c.profile.check(p.Leaf(), p.leaf.san)
			if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
	if s := keyUsageText(x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign); !strings.Contains(s, "digitalSignature, cRLSign") {
		t.Error(s)
	}
	if s := keyUsageText(0); s != "no key usage" {
		t.Error(s)
	}
}
