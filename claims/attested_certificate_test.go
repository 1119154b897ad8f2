package claims

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	x509pkix "crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/oid"
)

// A nodeCA issues certificates for a test.
type nodeCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newNodeCA(t testing.TB) *nodeCA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: x509pkix.Name{CommonName: "attested nodes"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca := &nodeCA{key: newECKey(t)}
	ca.cert = signCertificate(t, template, template, &ca.key.PublicKey, ca.key)
	return ca
}

func newECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signCertificate(t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// nodeTemplate is what a node's client certificate is made of.
func nodeTemplate(t testing.TB, name string) *x509.Certificate {
	t.Helper()
	extension, err := oid.ProviderIDExtension("gce://p/z/a")
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      x509pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		ExtraExtensions: []x509pkix.Extension{extension},
	}
}

// issue makes a certificate of a template, and its key.
func (ca *nodeCA) issue(t testing.TB, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key := newECKey(t)
	cert := signCertificate(t, template, ca.cert, &key.PublicKey, ca.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func TestAttestedNodeFromCertificate(t *testing.T) {
	ca := newNodeCA(t)
	cert := ca.issue(t, nodeTemplate(t, "node-a.example")).Leaf
	want := AttestedNode{Name: "node-a.example", ProviderID: "gce://p/z/a"}
	got, err := AttestedNodeFromCertificate(cert, &NodeCertificateOptions{RequireProviderID: true})
	if err != nil || *got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	template := nodeTemplate(t, "node-a")
	template.ExtraExtensions = nil
	cert = ca.issue(t, template).Leaf
	if got, err := AttestedNodeFromCertificate(cert, nil); err != nil || *got != (AttestedNode{Name: "node-a"}) {
		t.Errorf("without an extension: got %+v, %v", got, err)
	}
	_, err = AttestedNodeFromCertificate(cert, &NodeCertificateOptions{RequireProviderID: true})
	wantCheck(t, err, CheckNodeCertificate)
	if !errors.Is(err, oid.CheckProviderIDMissing) {
		t.Errorf("got %v, want %v", err, oid.CheckProviderIDMissing)
	}
}

func TestAttestedNodeFromCertificateRefuses(t *testing.T) {
	ca := newNodeCA(t)
	for name, change := range map[string]func(c *x509.Certificate){
		"another common name":    func(c *x509.Certificate) { c.Subject.CommonName = "node-a" },
		"no node name":           func(c *x509.Certificate) { c.Subject.CommonName = "system:node:" },
		"upper case":             func(c *x509.Certificate) { c.Subject.CommonName = "system:node:Node" },
		"another organization":   func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} },
		"no organization":        func(c *x509.Certificate) { c.Subject.Organization = nil },
		"two organizations":      func(c *x509.Certificate) { c.Subject.Organization = []string{"system:nodes", "system:masters"} },
		"one organization twice": func(c *x509.Certificate) { c.Subject.Organization = []string{"system:nodes", "system:nodes"} },
		"an organizational unit": func(c *x509.Certificate) { c.Subject.OrganizationalUnit = []string{"x"} },
		"a common name more": func(c *x509.Certificate) {
			commonName := asn1.ObjectIdentifier{2, 5, 4, 3}
			c.Subject.ExtraNames = []x509pkix.AttributeTypeAndValue{{Type: commonName, Value: "system:node:node-a"}, {Type: commonName, Value: "system:node:node-b"}}
		},
		"serving":       func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} },
		"any usage":     func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} },
		"no usage":      func(c *x509.Certificate) { c.ExtKeyUsage = nil },
		"a CA":          func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true },
		"expired":       func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) },
		"not yet valid": func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) },
		"a DNS name":    func(c *x509.Certificate) { c.DNSNames = []string{"node-a"} },
		"an IP address": func(c *x509.Certificate) { c.IPAddresses = []net.IP{{127, 0, 0, 1}} },
		"a URI":         func(c *x509.Certificate) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} },
		"provider ID critical": func(c *x509.Certificate) {
			c.ExtraExtensions[0].Critical = true
		},
		"provider ID trailing": func(c *x509.Certificate) {
			c.ExtraExtensions[0].Value = append(c.ExtraExtensions[0].Value, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := nodeTemplate(t, "node-a")
			change(template)
			node, err := AttestedNodeFromCertificate(ca.issue(t, template).Leaf, nil)
			wantCheck(t, err, CheckNodeCertificate)
			if node != nil {
				t.Errorf("refused with %+v", node)
			}
		})
	}
	_, err := AttestedNodeFromCertificate(nil, nil)
	wantCheck(t, err, CheckNodeCertificate)

	twice := ca.issue(t, nodeTemplate(t, "node-a")).Leaf // Go refuses to parse what is made so
	twice.Extensions = append(twice.Extensions, twice.Extensions...)
	_, err = AttestedNodeFromCertificate(twice, nil)
	wantCheck(t, err, CheckNodeCertificate)
	if !errors.Is(err, oid.CheckProviderIDDuplicate) {
		t.Errorf("got %v, want %v", err, oid.CheckProviderIDDuplicate)
	}
}

// TestAttestedNodeFromTLS: a certificate that was sent but not verified is nothing.
func TestAttestedNodeFromTLS(t *testing.T) {
	cert := newNodeCA(t).issue(t, nodeTemplate(t, "node-a")).Leaf
	for _, state := range []*tls.ConnectionState{
		nil, {}, {PeerCertificates: []*x509.Certificate{cert}}, {VerifiedChains: [][]*x509.Certificate{{}}},
	} {
		_, err := AttestedNodeFromTLS(state, nil)
		wantCheck(t, err, CheckNodeCertificate)
	}
	state := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	if node, err := AttestedNodeFromTLS(state, nil); err != nil || node.Name != "node-a" {
		t.Errorf("got %+v, %v", node, err)
	}
}
