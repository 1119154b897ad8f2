package tpmsim_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// shape is what of a certificate a style decides.
type shape struct {
	Subject  []string // attribute types, sorted
	KeyUsage x509.KeyUsage
	EKU      []string
	CA       bool
	Critical []string // of the extensions looked at, sorted
	Other    []string
}

// looked are the extensions that styles decide; real certificates have more.
var looked = []oid.OID{
	oid.SubjectAltName, oid.KeyUsage, oid.ExtendedKeyUsage, oid.BasicConstraints,
	oid.SubjectDirectoryAttributes, oid.KubernetesNodeProviderIdentifier, oid.CertificatePolicies,
}

func shapeOf(c *x509.Certificate) shape {
	s := shape{KeyUsage: c.KeyUsage, CA: c.IsCA}
	for _, n := range c.Subject.Names {
		s.Subject = append(s.Subject, n.Type.String())
	}
	slices.Sort(s.Subject)
	for _, u := range c.UnknownExtKeyUsage {
		s.EKU = append(s.EKU, u.String())
	}
	for _, e := range c.Extensions {
		id, _ := oid.FromASN1(e.Id)
		switch {
		case !slices.Contains(looked, id):
		case e.Critical:
			s.Critical = append(s.Critical, id.String())
		default:
			s.Other = append(s.Other, id.String())
		}
	}
	slices.Sort(s.Critical)
	slices.Sort(s.Other)
	return s
}

// Each style has the shape of certificates that its model issued.
func TestStylesLookLikeRealCertificates(t *testing.T) {
	corpus := os.Getenv("NODEATTEST_CORPUS")
	if corpus == "" {
		t.Skip("NODEATTEST_CORPUS, the folder of real certificates, is not set")
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.NoError(t, err)
	ca := newCA(t, tpmsim.CAOptions{})
	ak := func(s tpmsim.Style) (*x509.Certificate, error) {
		return ca.IssueAK(rsaKey.Public(), tpmsim.CertificateOptions{Style: s})
	}
	ek := func(s tpmsim.Style) (*x509.Certificate, error) {
		return ca.IssueEK(rsaKey.Public(), tpmsim.CertificateOptions{Style: s})
	}
	tests := []struct {
		file  string
		issue func(tpmsim.Style) (*x509.Certificate, error)
		style tpmsim.Style
	}{
		{"ek-certs/leaf/NTC-ek-RSA2048-933cdb17.der", ek, tpmsim.StyleTCG},
		{"ek-certs/leaf/GOOG-gce-P-256-25a5373d.der", ak, tpmsim.StyleGoogle},
		{"ek-certs/leaf/GOOG-gce-RSA2048-fa4e233a.der", ak, tpmsim.StyleGoogle},
		{"ek-certs/leaf/GOOG-gce-RSA2048-3722cd55.der", ek, tpmsim.StyleGoogle},
		{"ek-certs/leaf/GOOG-ek-P-256-9c49baf0.der", ak, tpmsim.StyleGoogleOld},
		{"azure-vtpm-linux/ak-cert.der", ak, tpmsim.StyleAzure},
	}
	for _, tt := range tests {
		t.Run(filepath.Base(tt.file), func(t *testing.T) {
			der, err := os.ReadFile(filepath.Join(corpus, tt.file))
			testkit.NoError(t, err)
			real, err := x509.ParseCertificate(der)
			testkit.NoError(t, err)
			ours, err := tt.issue(tt.style)
			testkit.NoError(t, err)
			want := shapeOf(real)
			if tt.style == tpmsim.StyleAzure {
				// Azure leaves basic constraints out, which crypto/x509 would read as we
				// write them, and names policies of no consequence.
				want.Critical = append(want.Critical, oid.BasicConstraints.String())
				want.Other = slices.DeleteFunc(want.Other, func(s string) bool { return s == oid.CertificatePolicies.String() })
			}
			if d := cmp.Diff(want, shapeOf(ours)); d != "" {
				t.Errorf("%v differs from the real one (-real +ours):\n%s", tt.style, d)
			}
		})
	}
}

func TestStyles(t *testing.T) {
	const (
		san, ku, bc, eku = "2.5.29.17", "2.5.29.15", "2.5.29.19", "2.5.29.37"
		sda, gce         = "2.5.29.9", "1.3.6.1.4.1.11129.2.1.21"
	)
	google := []string{"2.5.4.10", "2.5.4.11", "2.5.4.3", "2.5.4.7"}
	ak := map[tpmsim.Style]shape{
		0:                     {KeyUsage: x509.KeyUsageDigitalSignature, EKU: []string{"2.23.133.8.3"}, Critical: []string{ku, san, bc}, Other: []string{eku}},
		tpmsim.StyleTCG:       {KeyUsage: x509.KeyUsageDigitalSignature, EKU: []string{"2.23.133.8.3"}, Critical: []string{ku, san, bc}, Other: []string{eku}},
		tpmsim.StyleGoogle:    {Subject: google, KeyUsage: x509.KeyUsageDigitalSignature, Critical: []string{ku, bc}, Other: []string{gce}},
		tpmsim.StyleGoogleOld: {KeyUsage: x509.KeyUsageDigitalSignature, EKU: []string{"2.23.133.8.1"}, Critical: []string{ku, san, bc}, Other: []string{gce, eku, sda}},
		tpmsim.StyleAzure: {Subject: []string{"2.5.4.3"}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageContentCommitment,
			EKU: []string{"1.3.6.1.4.1.311.10.3.12"}, Critical: []string{ku, bc}, Other: []string{eku}},
	}
	ca := newCA(t, tpmsim.CAOptions{})
	pub := ecKey(t).Public()
	for style, want := range ak {
		c, err := ca.IssueAK(pub, tpmsim.CertificateOptions{Style: style})
		testkit.NoError(t, err)
		if d := cmp.Diff(want, shapeOf(c)); d != "" {
			t.Errorf("AK, %v (-want +got):\n%s", style, d)
		}
		if !c.PublicKey.(*ecdsa.PublicKey).Equal(pub) || len(c.SubjectKeyId) != 20 {
			t.Errorf("AK, %v: key %v, subject key id %x", style, c.PublicKey, c.SubjectKeyId)
		}
	}
	ek, err := ca.IssueEK(pub, tpmsim.CertificateOptions{})
	testkit.NoError(t, err)
	want := shape{KeyUsage: x509.KeyUsageKeyAgreement, EKU: []string{"2.23.133.8.1"}, Critical: []string{ku, san, bc}, Other: []string{eku, sda}}
	if d := cmp.Diff(want, shapeOf(ek)); d != "" {
		t.Errorf("EK (-want +got):\n%s", d)
	}
}

func TestCertificateOptions(t *testing.T) {
	other := &tpmsim.OtherName{Type: oid.KubernetesUID, Value: []byte("\x0c\x03abc")}
	instance := tpmsim.DefaultInstance()
	instance.InstanceName = "another"
	critical := pkix.Extension{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}
	past := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	type options = tpmsim.CertificateOptions
	ca := newCA(t, tpmsim.CAOptions{})
	key := ecKey(t)
	tests := map[string]struct {
		opts options
		ok   func(*x509.Certificate) bool
	}{
		"CA":     {options{IsCA: true}, func(c *x509.Certificate) bool { return c.IsCA }},
		"no EKU": {options{ExtKeyUsage: []oid.OID{}}, func(c *x509.Certificate) bool { return !has(c, oid.ExtendedKeyUsage) }},
		"EKU":    {options{ExtKeyUsage: []oid.OID{oid.TCGKpEKCertificate}}, func(c *x509.Certificate) bool { return oid.TCGKpEKCertificate.Equal(c.UnknownExtKeyUsage[0]) }},
		"no KU":  {options{KeyUsage: new(x509.KeyUsage(0))}, func(c *x509.Certificate) bool { return !has(c, oid.KeyUsage) }},
		"KU":     {options{KeyUsage: new(x509.KeyUsageCertSign)}, func(c *x509.Certificate) bool { return c.KeyUsage == x509.KeyUsageCertSign }},
		"no SAN": {options{NoSAN: true}, func(c *x509.Certificate) bool { return !has(c, oid.SubjectAltName) }},
		"extra": {options{Extra: []pkix.Extension{critical}}, func(c *x509.Certificate) bool {
			return len(c.UnhandledCriticalExtensions) == 2 && slices.ContainsFunc(c.UnhandledCriticalExtensions, critical.Id.Equal)
		}},
		"expired": {options{NotBefore: past, NotAfter: past.Add(time.Hour)}, func(c *x509.Certificate) bool {
			return c.NotBefore.Equal(past) && c.NotAfter.Equal(past.Add(time.Hour)) && verifyAt(ca, c, time.Time{}) != nil
		}},
		"not yet valid": {options{NotBefore: time.Now().Add(time.Hour)}, func(c *x509.Certificate) bool {
			return verifyAt(ca, c, time.Time{}) != nil && verifyAt(ca, c, time.Now().Add(2*time.Hour)) == nil
		}},
		"instance": {options{Style: tpmsim.StyleGoogle, Instance: instance}, func(c *x509.Certificate) bool {
			i, err := oid.ParseGCEInstance(extensionOf(c, oid.KubernetesNodeProviderIdentifier))
			return err == nil && cmp.Equal(i, instance)
		}},
		"other name": {options{OtherName: other}, func(c *x509.Certificate) bool {
			s := sanOf(t, c)
			return s.OtherType.Equal(asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}) && string(s.OtherValue) == "\x0c\x03abc"
		}},
		"edited": {options{Edit: func(t *x509.Certificate) { t.SubjectKeyId = []byte{1, 2, 3} }}, func(c *x509.Certificate) bool { return string(c.SubjectKeyId) == "\x01\x02\x03" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := ca.IssueAK(key.Public(), tt.opts)
			testkit.NoError(t, err)
			if !tt.ok(c) {
				t.Errorf("AK: not what was asked for: %+v", c)
			}
			if c, err = ca.IssueEK(key.Public(), tt.opts); err != nil {
				t.Fatal(err)
			}
			if !tt.ok(c) {
				t.Errorf("EK: not what was asked for: %+v", c)
			}
		})
	}
}

func TestCertificateOptionsRefused(t *testing.T) {
	san := pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: []byte{0x30, 0}}
	for name, opts := range map[string]tpmsim.CertificateOptions{
		"style":           {Style: -1},
		"other name":      {Style: tpmsim.StyleAzure, OtherName: &tpmsim.OtherName{Type: oid.KubernetesUID, Value: []byte{5, 0}}},
		"name, no SAN":    {NoSAN: true, OtherName: &tpmsim.OtherName{Type: oid.KubernetesUID, Value: []byte{5, 0}}},
		"instance in TCG": {Instance: tpmsim.DefaultInstance()},
		"device in TCG":   {Device: tpmsim.DefaultDevice()},
		"huge identifier": {ExtKeyUsage: []oid.OID{oid.NodeAttestHello}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newCA(t, tpmsim.CAOptions{}).IssueAK(ecKey(t).Public(), opts); !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("%s: %v, want ErrOptions", name, err)
			}
		})
	}
	// Refused by what encodes them.
	for name, opts := range map[string]tpmsim.CertificateOptions{
		"no identifier":  {OtherName: &tpmsim.OtherName{Type: "\x80", Value: []byte{5, 0}}},
		"two SANs":       {Extra: []pkix.Extension{san}},
		"empty instance": {Style: tpmsim.StyleGoogle, Instance: &oid.GCEInstance{}},
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := newCA(t, tpmsim.CAOptions{}).IssueAK(ecKey(t).Public(), opts); err == nil {
				t.Errorf("%s: issued %v", name, c)
			}
		})
	}
}

func has(c *x509.Certificate, o oid.OID) bool { return extensionOf(c, o) != nil }

func extensionOf(c *x509.Certificate, o oid.OID) []byte {
	for _, e := range c.Extensions {
		if o.Equal(e.Id) {
			return e.Value
		}
	}
	return nil
}

// san is a SAN as encoding/asn1, which is not what wrote it, reads it.
type san struct {
	Directory  [][]string
	OtherType  asn1.ObjectIdentifier
	OtherValue []byte
}

func sanOf(t *testing.T, c *x509.Certificate) san {
	t.Helper()
	var names []asn1.RawValue
	if rest, err := asn1.Unmarshal(extensionOf(c, oid.SubjectAltName), &names); err != nil || len(rest) > 0 {
		t.Fatalf("SAN: %v, %d bytes after", err, len(rest))
	}
	var s san
	for _, n := range names {
		switch n.Tag {
		case 0:
			rest, err := asn1.Unmarshal(n.Bytes, &s.OtherType)
			testkit.NoError(t, err)
			var v asn1.RawValue
			if _, err := asn1.UnmarshalWithParams(rest, &v, ""); err != nil || v.Class != asn1.ClassContextSpecific || v.Tag != 0 {
				t.Fatalf("value of the other name: %v, %+v", err, v)
			}
			s.OtherValue = v.Bytes
		case 4:
			var rdns []pkix.RelativeDistinguishedNameSET
			if _, err := asn1.Unmarshal(n.Bytes, &rdns); err != nil {
				t.Fatal(err)
			}
			for _, rdn := range rdns {
				var r []string
				for _, a := range rdn {
					r = append(r, a.Type.String()+"="+a.Value.(string))
				}
				s.Directory = append(s.Directory, r)
			}
		default:
			t.Fatalf("general name %+v", n)
		}
	}
	return s
}
