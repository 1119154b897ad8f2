package tpmcert

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/refusal"
)

var akDirectory = DirectoryName{Manufacturer: "id:494E5443", Vendor: "INTC", Model: "ADL", Version: "id:00020000"}

// akCA is a CA for AKs that is valid at chainTime.
func akCA(t testing.TB, edit func(*x509.Certificate)) *tpmlab.CA {
	return tpmlab.Sign(t, nil, "AK CA", edit)
}

func akTemplate(key crypto.PublicKey) AKTemplate {
	return AKTemplate{Key: key, PermanentIdentifier: "machine-7", Directory: akDirectory,
		NotBefore: tpmlab.Time, NotAfter: tpmlab.Time.Add(time.Hour)}
}

// The certificate has the form that ProfileTCG requires. (test/interop shows it to other readers.)
func TestCreateAKCertificate(t *testing.T) {
	ca := akCA(t, nil)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.NoError(t, err)
	identities := map[attest.Identity]bool{}
	for name, key := range map[string]crypto.PublicKey{"RSA-2048": rsaKey.Public(), "P-256": tpmlab.NewP256(t).Public(),
		"P-384": tpmlab.NewECDSA(t, elliptic.P384()).Public(), "P-521": tpmlab.NewECDSA(t, elliptic.P521()).Public()} {
		t.Run(name, func(t *testing.T) {
			made, err := CreateAKCertificate(t.Context(), akTemplate(key), ca.Cert, ca.Key)
			testkit.NoError(t, err)
			cert := made.Chain[0]
			if len(made.Chain) != 2 || !made.Chain[1].Equal(ca.Cert) || made.Directory != akDirectory {
				t.Errorf("a chain of %d, %+v", len(made.Chain), made.Directory)
			}
			identities[made.Machine] = true
			want := map[string]bool{"2.5.29.15": true, "2.5.29.37": false, "2.5.29.19": true, "2.5.29.35": false, "2.5.29.17": true}
			for _, e := range cert.Extensions {
				critical, known := want[e.Id.String()]
				if delete(want, e.Id.String()); !known || e.Critical != critical {
					t.Errorf("extension %s, critical %v", e.Id, e.Critical)
				}
			}
			if len(want) != 0 || cert.KeyUsage != x509.KeyUsageDigitalSignature || !cert.BasicConstraintsValid {
				t.Errorf("no extensions %v, %s", want, keyUsageText(cert.KeyUsage))
			}
			if !cert.NotBefore.Equal(tpmlab.Time) || !cert.NotAfter.Equal(tpmlab.Time.Add(time.Hour)) || cert.SerialNumber.BitLen() < 100 {
				t.Errorf("from %s to %s, number %s", cert.NotBefore, cert.NotAfter, cert.SerialNumber)
			}
		})
	}
	if len(identities) != 1 {
		t.Errorf("one machine is %v", identities)
	}
	bare := akTemplate(rsaKey.Public())
	bare.PermanentIdentifier, bare.Directory = strings.Repeat("é", 127), DirectoryName{}
	made, err := CreateAKCertificate(t.Context(), bare, ca.Cert, ca.Key)
	testkit.NoError(t, err)
	if identities[made.Machine] || made.Directory != (DirectoryName{}) {
		t.Errorf("another machine is %s, %+v", made.Machine, made.Directory)
	}
}

// TestAKThatCanBeFactored: a CA that certifies an AK made by Infineon's flawed key generation is not
// followed.
func TestAKThatCanBeFactored(t *testing.T) {
	ca := akCA(t, nil)
	made, err := CreateAKCertificate(t.Context(), akTemplate(tpmlab.RSA2048().Public()), ca.Cert, ca.Key)
	testkit.NoError(t, err)
	issuers := []Issuer{{Roots: []*x509.Certificate{ca.Cert}, Profile: ProfileTCG()}}
	for n, want := range map[*big.Int]refusal.Check{tpmlab.RSA2048().N: "", tpmlab.FlawedModulus(): "tpm-key-strength"} {
		leaf := *made.Chain[0]
		leaf.ExtraExtensions = leaf.Extensions
		der, err := x509.CreateCertificate(rand.Reader, &leaf, ca.Cert, &rsa.PublicKey{N: n, E: 65537}, ca.Key)
		testkit.NoError(t, err)
		_, err = VerifyAKCertificate(issuers, [][]byte{der}, tpmlab.Time)
		tpmlab.ExpectCheck(t, err, want)
	}
}

func TestCreateAKCertificateRefuses(t *testing.T) {
	ca, other := akCA(t, nil), tpmlab.NewP256(t)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	testkit.NoError(t, err)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	testkit.NoError(t, err)
	shape := *ca.Cert
	shape.SignatureAlgorithm, shape.PublicKey = 0, edKey.Public()
	edCA, err := x509.CreateCertificate(rand.Reader, &shape, &shape, edKey.Public(), edKey)
	testkit.NoError(t, err)
	parsedEdCA, err := x509.ParseCertificate(edCA)
	testkit.NoError(t, err)
	edited := func(edit func(*x509.Certificate)) func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer) {
		return func(t *testing.T, _ *AKTemplate) (*x509.Certificate, crypto.Signer) {
			ca := akCA(t, edit)
			return ca.Cert, ca.Key
		}
	}
	change := func(f func(*AKTemplate)) func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer) {
		return func(_ *testing.T, a *AKTemplate) (*x509.Certificate, crypto.Signer) {
			f(a)
			return ca.Cert, ca.Key
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer)
		want   refusal.Check
	}{
		"good":                      {change(func(*AKTemplate) {}), ""},
		"no key":                    {change(func(a *AKTemplate) { a.Key = nil }), refusal.Check("tpm-key-strength")},
		"an Ed25519 key":            {change(func(a *AKTemplate) { a.Key = edKey.Public() }), refusal.Check("tpm-key-strength")},
		"RSA of 1024 bits":          {change(func(a *AKTemplate) { a.Key = weak.Public() }), refusal.Check("tpm-key-strength")},
		"CVE-2017-15361":            {change(func(a *AKTemplate) { a.Key = &rsa.PublicKey{N: tpmlab.FlawedModulus(), E: 65537} }), refusal.Check("tpm-key-strength")},
		"no machine":                {change(func(a *AKTemplate) { a.PermanentIdentifier = "" }), der.CheckEncoding},
		"a longer machine":          {change(func(a *AKTemplate) { a.PermanentIdentifier = strings.Repeat("m", 256) }), der.CheckEncoding},
		"a machine not in UTF-8":    {change(func(a *AKTemplate) { a.PermanentIdentifier = "\xff" }), der.CheckEncoding},
		"no manufacturer":           {change(func(a *AKTemplate) { a.Directory.Manufacturer = "" }), checkSubjectAltName},
		"another manufacturer":      {change(func(a *AKTemplate) { a.Directory.Manufacturer = "INTC" }), checkSubjectAltName},
		"no model":                  {change(func(a *AKTemplate) { a.Directory.Model = "" }), checkSubjectAltName},
		"no version":                {change(func(a *AKTemplate) { a.Directory.Version = "" }), checkSubjectAltName},
		"a vendor alone":            {change(func(a *AKTemplate) { a.Directory = DirectoryName{Vendor: "INTC"} }), checkSubjectAltName},
		"no validity":               {change(func(a *AKTemplate) { a.NotBefore, a.NotAfter = time.Time{}, time.Time{} }), refusal.CheckConfig},
		"an end before":             {change(func(a *AKTemplate) { a.NotAfter = a.NotBefore.Add(-time.Second) }), checkCertificateExpired},
		"the CA's end":              {change(func(a *AKTemplate) { a.NotAfter = ca.Cert.NotAfter }), ""},
		"an end after the CA's":     {change(func(a *AKTemplate) { a.NotAfter = ca.Cert.NotAfter.Add(time.Second) }), refusal.CheckConfig},
		"a beginning before the CA": {change(func(a *AKTemplate) { a.NotBefore = ca.Cert.NotBefore.Add(-time.Second) }), checkCertificateNotYetValid},
		"no CA":                     {func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer) { return nil, ca.Key }, refusal.CheckConfig},
		"no CA key":                 {func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer) { return ca.Cert, nil }, refusal.CheckConfig},
		"another CA's key":          {func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer) { return ca.Cert, other }, refusal.CheckConfig},
		"a CA of Ed25519":           {func(*testing.T, *AKTemplate) (*x509.Certificate, crypto.Signer) { return parsedEdCA, edKey }, refusal.Check("tpm-key-strength")},
		"a certificate of no CA":    {edited(func(c *x509.Certificate) { c.IsCA = false }), CheckCertificateChain},
		"a CA for TLS":              {edited(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), checkCertificateExtKeyUsage},
		"a CA for CRLs":             {edited(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }), CheckCertificateChain},
	} {
		t.Run(name, func(t *testing.T) {
			a := akTemplate(other.Public())
			cert, key := c.change(t, &a)
			made, err := CreateAKCertificate(t.Context(), a, cert, key)
			if c.want == "" && err != nil || c.want != "" && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			if (made != nil) != (err == nil) {
				t.Errorf("%v and %v", made, err)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := CreateAKCertificate(ended, akTemplate(other.Public()), ca.Cert, ca.Key); !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("after its end: %v", err)
	}
}
