package tpmsim_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/tpmsim"
)

func newCA(t testing.TB, opts tpmsim.CAOptions) *tpmsim.CA {
	t.Helper()
	ca, err := tpmsim.NewCA(opts)
	testkit.NoError(t, err)
	return ca
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	return k
}

// verifyAt verifies a certificate by crypto/x509 against the CA's root, once its
// critical SAN, which crypto/x509 does not understand, is taken as handled.
func verifyAt(ca *tpmsim.CA, cert *x509.Certificate, now time.Time) error {
	c := *cert
	c.UnhandledCriticalExtensions = slices.DeleteFunc(slices.Clone(c.UnhandledCriticalExtensions), oid.SubjectAltName.Equal)
	roots, inter := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(ca.Root())
	for _, i := range ca.Intermediates() {
		inter.AddCert(i)
	}
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func verifyChain(t testing.TB, ca *tpmsim.CA, cert *x509.Certificate) {
	t.Helper()
	if err := verifyAt(ca, cert, time.Time{}); err != nil {
		t.Errorf("certificate of %v: %v", cert.Issuer, err)
	}
}

func TestCAHierarchy(t *testing.T) {
	ca := newCA(t, tpmsim.CAOptions{Name: "Example"})
	if !ca.Root().IsCA || ca.Root().CheckSignatureFrom(ca.Root()) != nil || ca.Root().Subject.CommonName != "Example root" {
		t.Errorf("root %v", ca.Root().Subject)
	}
	for i, c := range ca.Intermediates() {
		verifyChain(t, ca, c)
		if !c.IsCA || c.MaxPathLen != 0 || !c.MaxPathLenZero {
			t.Errorf("intermediate %d: IsCA %v, MaxPathLen %d", i, c.IsCA, c.MaxPathLen)
		}
	}
	if ca.Intermediates()[0] != ca.EKIntermediate() || ca.Intermediates()[1] != ca.AKIntermediate() {
		t.Error("the intermediates are in another order")
	}
	ek, err := ca.IssueEK(ecKey(t).Public(), tpmsim.CertificateOptions{})
	testkit.NoError(t, err)
	ak, err := ca.IssueAK(ecKey(t).Public(), tpmsim.CertificateOptions{})
	testkit.NoError(t, err)
	verifyChain(t, ca, ek)
	verifyChain(t, ca, ak)
	if err := ek.CheckSignatureFrom(ca.EKIntermediate()); err != nil {
		t.Errorf("EK certificate: %v", err)
	}
	if err := ak.CheckSignatureFrom(ca.AKIntermediate()); err != nil {
		t.Errorf("AK certificate: %v", err)
	}
}

func TestAnotherCAIsNoIssuer(t *testing.T) {
	ca, other := newCA(t, tpmsim.CAOptions{}), newCA(t, tpmsim.CAOptions{})
	ak, err := other.IssueAK(ecKey(t).Public(), tpmsim.CertificateOptions{})
	testkit.NoError(t, err)
	if verifyAt(ca, ak, time.Time{}) == nil {
		t.Error("a foreign CA's certificate verifies")
	}
}

func TestSeededCARepeats(t *testing.T) {
	now := func() time.Time { return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC) }
	pub := ecKey(t).Public()
	issue := func(seed string) []byte {
		ca := newCA(t, tpmsim.CAOptions{Seed: []byte(seed), Now: now})
		ak, err := ca.IssueAK(pub, tpmsim.CertificateOptions{})
		testkit.NoError(t, err)
		again, err := ca.IssueAK(pub, tpmsim.CertificateOptions{})
		testkit.NoError(t, err)
		if ak.SerialNumber.Cmp(again.SerialNumber) == 0 {
			t.Error("one CA gave one serial number twice")
		}
		return slices.Concat(ca.Root().Raw, ca.EKIntermediate().Raw, ca.AKIntermediate().Raw, ak.Raw, again.Raw)
	}
	if !bytes.Equal(issue("a"), issue("a")) {
		t.Error("one seed gives different certificates")
	}
	if bytes.Equal(issue("a"), issue("b")) {
		t.Error("two seeds give the same certificates")
	}
	if bytes.Equal(newCA(t, tpmsim.CAOptions{}).Root().Raw, newCA(t, tpmsim.CAOptions{}).Root().Raw) {
		t.Error("two CAs without a seed are the same")
	}
}

func TestIssueConcurrently(t *testing.T) {
	ca := newCA(t, tpmsim.CAOptions{Seed: []byte("a")})
	pub := ecKey(t).Public()
	var mu sync.Mutex
	serials := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				c, err := ca.IssueAK(pub, tpmsim.CertificateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				serials[c.SerialNumber.String()] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(serials) != 40 {
		t.Errorf("40 certificates, %d serial numbers", len(serials))
	}
}

func TestKeysThatNoCertificateHolds(t *testing.T) {
	ca := newCA(t, tpmsim.CAOptions{})
	for name, pub := range map[string]any{"nil": nil, "no key": "text", "value, not pointer": rsa.PublicKey{}} {
		t.Run(name, func(t *testing.T) {
			if _, err := ca.IssueAK(pub, tpmsim.CertificateOptions{}); err == nil {
				t.Errorf("%s: issued", name)
			}
			if _, err := ca.IssueEK(pub, tpmsim.CertificateOptions{}); err == nil {
				t.Errorf("%s: issued as an EK", name)
			}
		})
	}
}

// OpenSSL is a second opinion on chain and extensions.
func TestOpenSSLVerifies(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed (Debian: apt-get install openssl)")
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	testkit.NoError(t, err)
	ca := newCA(t, tpmsim.CAOptions{})
	dir := t.TempDir()
	writePEM(t, filepath.Join(dir, "root.pem"), ca.Root())
	for style := tpmsim.StyleTCG; style <= tpmsim.StyleAzure; style++ {
		ak, err := ca.IssueAK(ecKey(t).Public(), tpmsim.CertificateOptions{Style: style})
		testkit.NoError(t, err)
		ek, err := ca.IssueEK(rsaKey.Public(), tpmsim.CertificateOptions{Style: style})
		testkit.NoError(t, err)
		for name, c := range map[string]*x509.Certificate{"ak": ak, "ek": ek} {
			writePEM(t, filepath.Join(dir, "leaf.pem"), c)
			writePEM(t, filepath.Join(dir, "inter.pem"), map[string]*x509.Certificate{"ak": ca.AKIntermediate(), "ek": ca.EKIntermediate()}[name])
			cmd := exec.Command("openssl", "verify", "-x509_strict", "-CAfile", "root.pem", "-untrusted", "inter.pem", "leaf.pem")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v, %s: %v\n%s", style, name, err, out)
			}
		}
	}
}

func writePEM(t *testing.T, path string, c *x509.Certificate) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), 0o600))
}
