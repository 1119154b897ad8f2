package azure

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/internal/chain"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// corpus is the folder of recorded documents; it skips the test without that folder.
func corpus(t testing.TB) string {
	t.Helper()
	root := os.Getenv("NODEATTEST_CORPUS")
	if root == "" {
		t.Skip("NODEATTEST_CORPUS is not set: no recorded documents")
	}
	return filepath.Join(root, "cloud", "azure")
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	return testkit.Must(os.ReadFile(filepath.Join(corpus(t), name)))
}

func readPEM(t testing.TB, name string) (list []*x509.Certificate) {
	t.Helper()
	for data := readFile(t, name); ; {
		block, rest := pem.Decode(data)
		if block == nil {
			return list
		}
		c := testkit.Must(x509.ParseCertificate(block.Bytes))
		list, data = append(list, c), rest
	}
}

// recordedConfig trusts the roots of the recorded documents. One root stands there a second
// time, certified by another: that is an intermediate.
func recordedConfig(t testing.TB) VerifierConfig {
	c := VerifierConfig{Intermediates: readPEM(t, "intermediates.pem"), Domains: []string{domainPublic, "metadata.azure.us"}}
	for _, r := range readPEM(t, "roots.pem") {
		if string(r.RawSubject) == string(r.RawIssuer) {
			c.Roots = append(c.Roots, r)
		} else {
			c.Intermediates = append(c.Intermediates, r)
		}
	}
	return c
}

func newVerifier(t testing.TB, c VerifierConfig) *Verifier {
	t.Helper()
	return testkit.Must(NewVerifier(c))
}

// today is when the recorded documents were looked at: all are too old.
var today = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// recorded is one recorded document, and the known facts about it.
type recorded struct {
	file, created string
	name          string // of the signer
	issuer        string // Common Name
	roots         string // Common Names of the roots that it chains to
	subscription  string
	check         refusal.Check // that fails at its own time; "" for none
	now           refusal.Check // that fails today; "" for the end of the certificate
}

const (
	digiCertG2 = "DigiCert Global Root G2"
	baltimore  = "Baltimore CyberTrust Root"
	microsoft  = "Microsoft RSA Root Certificate Authority 2017"
	microsoft2 = "Microsoft TLS RSA Root G2"
)

func recordings() []recorded {
	it4, rsa01, rsa02 := "Microsoft IT TLS CA 4", "Microsoft RSA TLS CA 01", "Microsoft RSA TLS CA 02"
	tls := func(n string) string { return "Microsoft Azure TLS Issuing CA " + n }
	rsa := func(n string) string { return "Microsoft Azure RSA TLS Issuing CA " + n }
	at := func(region string) string { return region + ".metadata.azure.com" }
	const mozilla = "8a205152-b25a-417f-a676-80465535a6c9"
	return []recorded{
		{"taskcluster-2019-12-nonce", "2019-12-13T00:33:40Z", at("westus"), it4, baltimore, "", "", ""},
		{"taskcluster-2019-12-bad-content", "2019-12-13T00:33:40Z", at("westus"), it4, baltimore, "", checkSignature, ""},
		{"taskcluster-2019-12-bad-signature", "2019-12-13T00:33:40Z", at("westus"), it4, baltimore, "", checkSignature, ""},
		{"rhsm", "2021-01-04T13:55:34Z", at("westeurope"), rsa01, baltimore, "", "", ""},
		{"taskcluster-2021-04", "2021-04-21T18:09:27Z", at("eastus"), rsa02, baltimore, "fe7fd10a-bdc1-44b0-811e-94c4b4be754f", "", ""},
		{"taskcluster-2022-03", "2022-03-10T10:56:58Z", at("eastus"), rsa01, baltimore, "eba12516-eef8-4ad3-ad56-58c3c29ca6cf", "", ""},
		{"coder-regular", "2022-04-19T01:27:21Z", at("southcentralus"), rsa01, baltimore, "5f130ffc-0a3e-4795-b691-4f56a12a5547", "", ""},
		{"taskcluster-2023-01", "2023-01-05T10:41:55Z", at("westeurope"), tls("01"), digiCertG2, "5c5a6349-a52b-4e7f-ac78-3a62c211eda4", "", ""},
		{"coder-govcloud", "2023-03-08T17:09:33Z", "usgovvirginia.metadata.azure.us", tls("05"), digiCertG2, "0afbfffa-5df9-4a3b-987e-fe7577624272", "", ""},
		{"sap-northeurope", "2023-10-02T12:33:11Z", at("northeurope"), tls("05"), digiCertG2, "6a73742d-8c0a-4b2d-9c60-67c592a0df50", "", ""},
		{"taskcluster-2023-10", "2023-10-31T15:30:11Z", at("westeurope"), tls("05"), digiCertG2, "5c5a6349-a52b-4e7f-ac78-3a62c211eda4", "", ""},
		{"coder-rsa", "2024-04-22T17:32:45Z", at("eastus"), rsa("08"), digiCertG2 + "," + microsoft, "05e8b285-4ce1-46a3-b4c9-f51ba67d6acc", "", ""},
		{"taskcluster-2024-06", "2024-06-28T10:10:14Z", at("southcentralus"), rsa("07"), digiCertG2 + "," + microsoft, mozilla, "", ""},
		{"taskcluster-2025-04", "2025-04-23T16:23:58Z", at("eastus"), rsa("03"), digiCertG2 + "," + microsoft, mozilla, "", ""},
		{"taskcluster-2025-08", "2025-08-19T19:04:40Z", at("southcentralus"), rsa("04"), digiCertG2 + "," + microsoft, mozilla, "", ""},
		{"taskcluster-2025-11", "2025-11-19T12:53:30Z", at("eastus"), rsa("07"), digiCertG2 + "," + microsoft, mozilla, "", ""},
		{"taskcluster-2026-04", "2026-04-23T15:49:58Z", at("eastus"), rsa("04"), digiCertG2 + "," + microsoft, mozilla, "", ""},
		{"taskcluster-2026-07-g2", "2026-07-28T13:24:00Z", at("eastus"), "Microsoft TLS G2 RSA CA OCSP 02", digiCertG2 + "," + microsoft2, mozilla, "", ""},
		{"microsoft-docs", "2018-11-20T22:07:39Z", "", "testsubdomain.metadata.azure.com", "", "", chain.CheckChain, chain.CheckChain},
		{"synthetic-wrong-subject", "2020-11-15T12:00:00Z", "", "", "", "fe7fd10a-bdc1-44b0-811e-94c4b4be754f", chain.CheckChain, chain.CheckChain},
	}
}

// TestRecordings: each recorded document gives the known facts at its own time, and
// fails on its age alone today.
func TestRecordings(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus(t), "*.p7"))
	if err != nil || len(files) != len(recordings()) {
		t.Fatalf("%d recorded documents, and %d known: %v", len(files), len(recordings()), err)
	}
	c := recordedConfig(t)
	v := newVerifier(t, c)
	for _, r := range recordings() {
		t.Run(r.file, func(t *testing.T) {
			data := readFile(t, r.file+".p7")
			created := testkit.Must(time.Parse(time.RFC3339, r.created))
			read := testkit.Must(parseInsecure(data))
			if !read.CreatedOn.Equal(created) || read.SubscriptionID != r.subscription || read.Chain != nil || read.Name != "" {
				t.Errorf("read as %+v", read)
			}
			d, err := v.Verify(context.Background(), data, created)
			if r.check != "" {
				if !errors.Is(err, r.check) || d != nil {
					t.Errorf("at its time: %v, want %s", err, r.check)
				}
			} else {
				expectRecorded(t, &r, read, d, err)
			}
			want := r.now
			if want == "" {
				want = chain.CheckExpired
			}
			if _, err := v.Verify(context.Background(), data, today); !errors.Is(err, want) {
				t.Errorf("today: %v, want %s", err, want)
			}
			for _, root := range c.Roots { // each alone
				_, err := newVerifier(t, VerifierConfig{Roots: []*x509.Certificate{root}, Intermediates: c.Intermediates, Domains: c.Domains}).
					Verify(context.Background(), data, created)
				anchored := err == nil || errors.Is(err, checkSignature)
				if anchored != strings.Contains(","+r.roots+",", ","+root.Subject.CommonName+",") {
					t.Errorf("under %s alone: %v", root.Subject.CommonName, err)
				}
			}
		})
	}
}

func expectRecorded(t *testing.T, r *recorded, read, d *Document, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("at its time: %v", err)
	}
	if d.VMID != read.VMID || d.Nonce != read.Nonce || d.SubscriptionID != r.subscription || d.ExpiresOn.Sub(d.CreatedOn) != 6*time.Hour {
		t.Errorf("verified as %+v, read as %+v", d, read)
	}
	cn := d.Chain[1].Subject.CommonName
	if d.Name != r.name && !strings.HasSuffix(r.name, "."+d.Name) || cn != r.issuer {
		t.Errorf("of %s by %s, want of %s by %s", d.Name, cn, r.name, r.issuer)
	}
	if names := strings.Join(d.Chain[0].DNSNames, " "); !strings.Contains(names, r.name) {
		t.Errorf("names %s, want %s among them", names, r.name)
	}
}

// TestRecordedClouds: the chains of two clouds are the same, and their names are not.
func TestRecordedClouds(t *testing.T) {
	data, at := readFile(t, "coder-govcloud.p7"), time.Date(2023, 3, 8, 17, 9, 33, 0, time.UTC)
	c := recordedConfig(t)
	for domain, want := range map[string]refusal.Check{"": checkName, domainPublic: checkName, "metadata.azure.cn": checkName, "metadata.azure.us": "", "usgovvirginia.metadata.azure.us": "", "Metadata.Azure.US": ""} {
		t.Run(domain, func(t *testing.T) {
			if c.Domains = []string{domain}; domain == "" {
				c.Domains = nil
			}
			_, err := newVerifier(t, c).Verify(context.Background(), data, at)
			if want == "" && err != nil || want != "" && !errors.Is(err, want) {
				t.Errorf("cloud %q: %v, want %q", domain, err, want)
			}
		})
	}
}

// TestRecordedIntermediates: the chain of 2026 has two intermediates where DigiCert alone is
// trusted, and each is needed.
func TestRecordedIntermediates(t *testing.T) {
	data, at := readFile(t, "taskcluster-2026-07-g2.p7"), time.Date(2026, 7, 28, 13, 24, 0, 0, time.UTC)
	c := recordedConfig(t)
	var roots, issuing, cross []*x509.Certificate
	for _, r := range c.Roots {
		if r.Subject.CommonName == digiCertG2 {
			roots = append(roots, r)
		}
	}
	for _, i := range c.Intermediates {
		switch i.Subject.CommonName {
		case "Microsoft TLS G2 RSA CA OCSP 02":
			issuing = append(issuing, i)
		case microsoft2:
			cross = append(cross, i)
		}
	}
	for _, tt := range []struct {
		name          string
		intermediates []*x509.Certificate
		want          refusal.Check
	}{
		{"both", append(issuing, cross...), ""},
		{"the issuing one alone", issuing, chain.CheckChain},
		{"the upper one alone", cross, chain.CheckChain},
		{"none", nil, chain.CheckChain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := newVerifier(t, VerifierConfig{Roots: roots, Intermediates: tt.intermediates}).Verify(context.Background(), data, at)
			if tt.want == "" && (err != nil || len(d.Chain) != 4) || tt.want != "" && !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
		})
	}
}
