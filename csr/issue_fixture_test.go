package csr_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/netip"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/csr"
)

// issueTime is the clock of the tests that issue: not on a whole second.
var issueTime = time.Date(2026, 11, 20, 10, 0, 0, 987654321, time.UTC)

// caTemplate is a CA certificate that issues at issueTime and for long.
func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             issueTime.Add(-24 * time.Hour).Truncate(time.Second),
		NotAfter:              issueTime.Add(3650 * 24 * time.Hour).Truncate(time.Second),
		BasicConstraintsValid: true,
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
}

// makeCA signs a CA certificate; parent nil signs it with its own key.
func makeCA(t testing.TB, template *x509.Certificate, key crypto.Signer, parent *x509.Certificate, parentKey crypto.Signer) *x509.Certificate {
	t.Helper()
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func goodOptions() csr.CAConfig {
	return csr.CAConfig{
		SignerNames: []string{csr.SignerClientTPM, csr.SignerServingTPM, csr.SignerRecoveryTPM},
		ClusterIDs:  []string{goodCluster},
		Now:         func() time.Time { return issueTime },
	}
}

// newCA is a CA of one self-signed certificate.
func newCA(t testing.TB, opts csr.CAConfig) *csr.CA {
	t.Helper()
	ca, err := csr.NewCA([]*x509.Certificate{makeCA(t, caTemplate("CA"), p256Key(), nil, nil)}, p256Key(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// goodVerified vouches for everything that a checked request of goodFixture has.
func goodVerified(c *csr.Checked) *csr.Attested { return verifiedWith(c, func(*csr.Grant) {}) }

// verifiedWith is goodVerified with something changed in the grant.
func verifiedWith(c *csr.Checked, change func(*csr.Grant)) *csr.Attested {
	grant := csr.Grant{ProviderID: goodProviderID,
		DNSNames: []string{"NODE-1", "other.example"}, IPAddresses: []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.7")}}
	change(&grant)
	return c.Vouch(goodIdentity, grant, nil)
}

func mustIssue(t testing.TB, ca *csr.CA, a *csr.Attested) *csr.Issued {
	t.Helper()
	issued, err := ca.Issue(context.Background(), a)
	if err != nil {
		t.Fatal(err)
	}
	return issued
}
