package settings

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/cloud/nitro"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// insecureSection is a section of the configuration for machines that cannot attest.
const insecureSection = "\ninsecureSigner: {certificateFile: insecure.crt, keyFile: insecure.key}\n"

// TestInsecureSigner tries good and bad sections.
func TestInsecureSigner(t *testing.T) {
	good := shipped(t) + insecureSection
	s, err := Parse([]byte(good))
	if err != nil || s.InsecureSigner.MaxLifetime.Duration != 365*24*time.Hour || s.InsecureSigner.MetricsAddress == "" || s.InsecureSigner.HealthAddress == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	if slices.Contains(s.OwnSigners(), csr.SignerClientInsecure) {
		t.Errorf("the signer of nodes that attest serves %q", s.OwnSigners())
	}
	for name, row := range map[string]struct{ old, with, want string }{
		"no certificate":                  {"certificateFile: insecure.crt", "certificateFile: ''", "two paths"},
		"no key":                          {", keyFile: insecure.key", "", "two paths"},
		"the attested nodes' certificate": {"certificateFile: insecure.crt", "certificateFile: /etc/nodeattest/ca/tls.crt", "a CA of its own"},
		"the attested nodes' key":         {"keyFile: insecure.key", "keyFile: /etc/nodeattest/ca/tls.key", "a CA of its own"},
		"over a year":                     {"keyFile: insecure.key", "keyFile: insecure.key, maxLifetime: 8760h1s", "insecureSigner.maxLifetime"},
		"under a minute":                  {"keyFile: insecure.key", "keyFile: insecure.key, maxLifetime: 59s", "insecureSigner.maxLifetime"},
		"an unknown field":                {"keyFile: insecure.key", "keyFile: insecure.key, serving: true", "serving"},
		// The programs of nodes that attest never serve its signer.
		"its signer among the others": {"    - kubernetes.io/kube-apiserver-client-kubelet", "    - " + csr.SignerClientInsecure, "signers.names"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Count(good, row.old) != 1 {
				t.Fatalf("%q is there %d times", row.old, strings.Count(good, row.old))
			}
			if _, err := Parse([]byte(strings.Replace(good, row.old, row.with, 1))); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
		})
	}
	for _, lifetime := range []string{"1m", "8760h"} {
		if _, err := Parse([]byte(strings.Replace(good, "keyFile: insecure.key", "keyFile: insecure.key, maxLifetime: "+lifetime, 1))); err != nil {
			t.Errorf("%s: %v", lifetime, err)
		}
	}
}

// TestInventoryWithoutEvidence tries entries of machines that cannot attest.
func TestInventoryWithoutEvidence(t *testing.T) {
	s := testkit.Must(Parse([]byte(shipped(t) + insecureSection)))
	for entry, want := range map[string]string{ // of the provider, or "" for an error
		"evidence: none":                          "insecure",
		"evidence: none, providerID: 'rack://1'":  "insecure",
		"evidence: none, uid: u1":                 "insecure",
		"evidence: ''":                            "tpm",
		"evidence: None":                          "",
		"evidence: tpm":                           "",
		"evidence: insecure":                      "",
		"kind: insecure":                          "",
		"kind: none":                              "",
		"evidence: none, kind: tpm":               "",
		"evidence: none, dnsNames: [node-1]":      "",
		"evidence: none, ipAddresses: [10.0.0.1]": "",
		"evidence: none, identity: 'ek:sha256:" + strings.Repeat("00", 32) + "'": "",
	} {
		t.Run(entry, func(t *testing.T) {
			machines, err := s.ParseInventory([]byte("machines: [{nodeName: node-1, " + entry + "}]"))
			if got := machines["node-1"].Provider; got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		})
	}
	if _, err := known(t).ParseInventory([]byte("machines: [{nodeName: node-1, evidence: none}]")); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("no signer serves such a machine: %v", err)
	}
	m := new(Machines)
	m.listed.Store(s.ParseParts(map[string][]byte{"1": []byte("machines: [{nodeName: b, evidence: none}, {nodeName: c}]"), "2": []byte("machines: [{nodeName: a, evidence: none}]")}))
	if names := m.WithoutEvidence(); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("without evidence: %q, %v", names, m.listed.Load().Problems())
	}
}

// TestWithoutEvidenceTakesNone has machines with evidence of each kind ask for the name of one
// without evidence: no evidence is accepted for that name, whatever its identity.
func TestWithoutEvidenceTakesNone(t *testing.T) {
	w := newWorld(t)
	for kind, prover := range w.provers(t) {
		mode := "mode: FirstUse, kind: " + kind
		switch kind {
		case ec2.Provider: // of which only STS, which is away, says who it is
			continue
		case nitro.Provider: // which has no first use
			mode = "mode: Approval, kind: " + kind
		}
		p := w.plane(t, "machines: [{nodeName: node-1, evidence: none}]", "profile: google}", "profile: google, projects: [example-project]}", "mode: Inventory", mode, "\ninventory:", insecureSection+"\ninventory:")
		signer := testkit.Must(csr.PurposeClient.SignerName(kind))
		for _, signer := range []string{signer, csr.SignerKubeAPIServerClientKubelet} {
			if err := p.join(t, prover, "node-1", signer); !errors.Is(err, attest.CheckMembership) || !strings.Contains(err.Error(), "one by insecure") {
				t.Errorf("%s under %s: %v", kind, signer, err)
			}
		}
		// Its own requests are for another program, and to no other signer.
		for signer, want := range map[string]csr.Verdict{csr.SignerClientInsecure: csr.VerdictIgnore, signer: csr.VerdictDeny, csr.SignerKubeAPIServerClientKubelet: csr.VerdictDeny} {
			if _, err := p.Verify(t.Context(), plain(t, "node-1", signer)); csr.Decide(err).Verdict != want {
				t.Errorf("without evidence under %s: %v, want it to %s", signer, err, want)
			}
		}
		if slices.Contains(p.SignerNames(), csr.SignerClientInsecure) {
			t.Errorf("the controller serves %q", p.SignerNames())
		}
	}
}

// plain is a request without evidence.
func plain(t *testing.T, nodeName, signer string) *csr.Request {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	request := testkit.Must(csr.Create(csr.PurposeClient, key, nodeName, csr.CreateOptions{}))
	spec := testkit.Must((&csr.Bundle{Request: request}).Spec(signer, 3600))
	return filed(spec)
}

// TestInsecureCA: a party that trusts the cluster's CA does not trust the CA of nodes without evidence.
func TestInsecureCA(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, certificates ...*x509.Certificate) string {
		t.Helper()
		var text []byte
		for _, c := range certificates {
			text = append(text, pemOf(c)...)
		}
		path := filepath.Join(dir, name)
		testkit.MustDo(os.WriteFile(path, text, 0o600))
		return path
	}
	cluster, clusterKey := newCA(t, "cluster", nil, nil)
	formerly, _ := newCA(t, "formerly", nil, nil)
	root, rootKey := newCA(t, "root", nil, nil)
	own, _ := newCA(t, "own", root, rootKey)
	below, _ := newCA(t, "below the cluster's", cluster, clusterKey)
	for name, row := range map[string]struct {
		chain []*x509.Certificate
		ok    bool
	}{
		"of its own":            {[]*x509.Certificate{own, root}, true},
		"without its root":      {[]*x509.Certificate{own}, true},
		"the cluster's":         {[]*x509.Certificate{cluster}, false},
		"the cluster's former":  {[]*x509.Certificate{formerly}, false},
		"below the cluster's":   {[]*x509.Certificate{below}, false},
		"with the cluster's CA": {[]*x509.Certificate{below, cluster}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Settings{Cluster: Cluster{CAFile: write("cluster.crt", cluster, formerly)}, InsecureSigner: &InsecureSigner{CertificateFile: write("own.crt", row.chain...)}}
			if err := s.CheckInsecureCA(); (err == nil) != row.ok || err != nil && !errors.Is(err, refusal.CheckConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// newCA makes a CA, below another one if that is given.
func newCA(t *testing.T, name string, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key := testkit.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if parent == nil {
		parent, by = template, key
	}
	der := testkit.Must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by))
	c := testkit.Must(x509.ParseCertificate(der))
	return c, key
}
