package tpmcert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
	"github.com/nodeattest/nodeattest/oid"
)

var updateEKTable = flag.Bool("update-ek-table", false, "write testdata/ek-vendors.golden anew")

// vendorCAs are the CA certificates of ek-certs/ca and vendor-cas, in DER and in PEM,
// each once: self-signed ones are roots.
func vendorCAs(t *testing.T) (roots, intermediates []*x509.Certificate) {
	t.Helper()
	seen := map[string]bool{}
	add := func(der []byte) {
		c, err := x509.ParseCertificate(der)
		if err != nil || seen[string(c.Raw)] {
			return
		}
		seen[string(c.Raw)] = true
		if bytes.Equal(c.RawIssuer, c.RawSubject) {
			roots = append(roots, c)
		} else {
			intermediates = append(intermediates, c)
		}
	}
	for _, dir := range []string{"ek-certs/ca", "vendor-cas"} {
		err := filepath.WalkDir(filepath.Join(tpmlab.CorpusDir(t), dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".der", ".cer", ".crt", ".pem"}, filepath.Ext(path)) {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if !bytes.Contains(data, []byte("-----BEGIN CERTIFICATE")) {
				add(data)
				return nil
			}
			for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
				add(block.Bytes)
			}
			return nil
		})
		testkit.NoError(t, err)
	}
	if len(roots) < 40 || len(intermediates) < 150 {
		t.Fatalf("%d roots and %d intermediates in the corpus", len(roots), len(intermediates))
	}
	return roots, intermediates
}

// profilesByStrictness are the profiles that the table tries, strictest first.
func profilesByStrictness() []EKProfile {
	sha1 := EKProfileTPM12()
	sha1.InsecureAllowSHA1Links = true
	return []EKProfile{EKProfileTCG(), EKProfileIntel(), EKProfileGoogle(), EKProfileTPM12(), sha1}
}

// ekOutcome is the result of the strictest profile that accepts, or else the refusal of the profile
// that comes furthest.
func ekOutcome(t *testing.T, roots, intermediates []*x509.Certificate, der []byte) string {
	t.Helper()
	for n, p := range profilesByStrictness() {
		v, err := NewEKVerifier(EKVerifierConfig{Issuers: []EKIssuer{{Roots: roots, Intermediates: intermediates, Profile: p}}})
		testkit.NoError(t, err)
		facts, err := verifyInside(v, der)
		if err == nil {
			text := "accepted under " + facts.Profile
			if len(facts.Tolerances) > 0 {
				text += " with " + strings.Join(facts.Tolerances, ", ")
			}
			if again, err := x509.ParseCertificate(der); err != nil || !facts.Chain[0].Equal(again) || len(facts.Chain) < 2 {
				t.Errorf("a chain of %d that does not begin with the certificate", len(facts.Chain))
			}
			return text
		}
		if !hasCheck(err) {
			t.Errorf("%v is no check", err)
		}
		if n == len(profilesByStrictness())-1 {
			return "refused: " + mostTelling(roots, intermediates, der)
		}
	}
	return ""
}

// mostTelling is the error of one verifier with all profiles.
func mostTelling(roots, intermediates []*x509.Certificate, der []byte) string {
	c := EKVerifierConfig{}
	for _, p := range profilesByStrictness() {
		c.Issuers = append(c.Issuers, EKIssuer{Roots: roots, Intermediates: intermediates, Profile: p})
	}
	v, err := NewEKVerifier(c)
	if err == nil {
		_, err = verifyInside(v, der)
	}
	return strings.TrimPrefix(err.Error(), "tpmcert: ")
}

// verifyInside tries some times inside the certificate's validity: validities in old chains overlap
// only in part.
func verifyInside(v *EKVerifier, der []byte) (facts *EKFacts, err error) {
	ek := &sentEK{Certificates: [][]byte{der}}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	step := c.NotAfter.Sub(c.NotBefore) / 20
	for n := range 20 {
		at := c.NotBefore.Add(time.Duration(n)*step + time.Second)
		if facts, err = verifyEKOf(context.Background(), v, ek, nil, at); err == nil || !outsideValidity(err) {
			return facts, err
		}
	}
	return nil, err
}

func outsideValidity(err error) bool {
	return errors.Is(err, checkCertificateExpired) || errors.Is(err, checkCertificateNotYetValid)
}

// chainsToRoot says which leaves have a complete chain in the corpus: the leaves that its table
// marks so, which looked in ek-certs/ca alone, and two more whose root is in vendor-cas (GlobalSign
// Trusted Platform Module Root CA).
func chainsToRoot(t *testing.T) map[string]bool {
	t.Helper()
	table, err := os.ReadFile(filepath.Join(tpmlab.CorpusDir(t), "ek-certs/RESULTS.tsv"))
	testkit.NoError(t, err)
	complete := map[string]bool{"STM-ek-nil-07d685f9": true, "STM-ek-nil-493713a9": true}
	marked := 0
	for line := range strings.Lines(string(table)) {
		if columns := strings.Split(line, "\t"); len(columns) > 9 && columns[9] == "true" {
			complete[strings.TrimSuffix(columns[0], ".der")] = true
			marked++
		}
	}
	if marked < 25 {
		t.Fatalf("%d leaves are marked", marked)
	}
	return complete
}

// isEK goes by the usages: neither an AK's extended key usage nor a signing key's key
// usage. Google's older AK certificates have the EK's extended key usage, and the
// corpus names three of them ek.
func isEK(t *testing.T, der []byte) bool {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	testkit.NoError(t, err)
	return !slices.ContainsFunc(c.UnknownExtKeyUsage, oid.TCGKpAIKCertificate.Equal) && c.KeyUsage != x509.KeyUsageDigitalSignature
}

// The EK certificate that a switch sent chains over two CAs of STMicroelectronics to
// GlobalSign's root, and under no other.
func TestEKOfRealHardware(t *testing.T) {
	roots, intermediates := vendorCAs(t)
	der := tpmlab.Corpus(t, "oem", "attestz", "ek-certificate.der")
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	verify := func(roots []*x509.Certificate, at time.Time) (*EKFacts, error) {
		v, err := NewEKVerifier(EKVerifierConfig{Issuers: []EKIssuer{{Roots: roots, Intermediates: intermediates, Profile: EKProfileTCG()}}})
		testkit.NoError(t, err)
		return verifyEKOf(context.Background(), v, &sentEK{Certificates: [][]byte{der}}, nil, at)
	}
	facts, err := verify(roots, at)
	testkit.NoError(t, err)
	var names []string
	for _, c := range facts.Chain[1:] {
		names = append(names, c.Subject.CommonName)
	}
	if got := strings.Join(names, " < "); got != "STM TPM EK Intermediate CA 06 < STM TPM EK Root CA < GlobalSign Trusted Platform Module Root CA" {
		t.Errorf("its chain is %s", got)
	}
	others := slices.DeleteFunc(slices.Clone(roots), func(c *x509.Certificate) bool { return c.Equal(facts.Chain[len(facts.Chain)-1]) })
	if _, err := verify(others, at); !errors.Is(err, CheckCertificateChain) {
		t.Errorf("without its root: %v", err)
	}
	if _, err := verify(roots, facts.Chain[0].NotBefore.Add(-time.Second)); !errors.Is(err, checkCertificateNotYetValid) {
		t.Errorf("a second before: %v", err)
	}
}

// The golden table: every leaf of the corpus with its vendor and what becomes of it.
func TestEKCertificatesOfVendors(t *testing.T) {
	roots, intermediates := vendorCAs(t)
	files, err := filepath.Glob(filepath.Join(tpmlab.CorpusDir(t), "ek-certs/leaf/*.der"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d leaves, %v", len(files), err)
	}
	complete := chainsToRoot(t)
	var table strings.Builder
	for _, file := range files {
		der, err := os.ReadFile(file)
		testkit.NoError(t, err)
		vendor := "-"
		if ek, err := ParseEK(der); err == nil && ek.Directory.Manufacturer != "" {
			vendor = cmp.Or(ek.Directory.Vendor, ek.Directory.Manufacturer)
		}
		name, outcome := strings.TrimSuffix(filepath.Base(file), ".der"), ekOutcome(t, roots, intermediates, der)
		fmt.Fprintf(&table, "%s | %s | %s\n", name, vendor, outcome)
		if want := isEK(t, der) && complete[name]; want != strings.HasPrefix(outcome, "accepted") {
			t.Errorf("%s: %s; an EK certificate with a chain: %t", name, outcome, want)
		}
	}
	golden := filepath.Join("testdata", "ek-vendors.golden")
	if *updateEKTable {
		testkit.NoError(t, os.WriteFile(golden, []byte(table.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	testkit.NoError(t, err)
	if got := table.String(); got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
