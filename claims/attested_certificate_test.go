package claims

import (
	"context"
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
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
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

// nodeTemplate is the template of a node's client certificate.
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
	got, err := attestedNodeFromCertificate(cert, NodeCertificateOptions{RequireProviderID: true})
	if err != nil || *got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	template := nodeTemplate(t, "node-a")
	template.ExtraExtensions = nil
	cert = ca.issue(t, template).Leaf
	if got, err := attestedNodeFromCertificate(cert, NodeCertificateOptions{}); err != nil || *got != (AttestedNode{Name: "node-a"}) {
		t.Errorf("without an extension: got %+v, %v", got, err)
	}
	_, err = attestedNodeFromCertificate(cert, NodeCertificateOptions{RequireProviderID: true})
	wantCheck(t, err, checkNodeCertificate)
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
			node, err := attestedNodeFromCertificate(ca.issue(t, template).Leaf, NodeCertificateOptions{})
			wantCheck(t, err, checkNodeCertificate)
			if node != nil {
				t.Errorf("refused with %+v", node)
			}
		})
	}
	_, err := attestedNodeFromCertificate(nil, NodeCertificateOptions{})
	wantCheck(t, err, checkNodeCertificate)

	twice := ca.issue(t, nodeTemplate(t, "node-a")).Leaf // Go refuses to parse it
	twice.Extensions = append(twice.Extensions, twice.Extensions...)
	_, err = attestedNodeFromCertificate(twice, NodeCertificateOptions{})
	wantCheck(t, err, checkNodeCertificate)
	if !errors.Is(err, refusal.Check("provider-id-duplicate")) {
		t.Errorf("got %v, want %v", err, refusal.Check("provider-id-duplicate"))
	}
}

// TestAttestedNodeFromTLS: a certificate that was sent but not verified is nothing.
func TestAttestedNodeFromTLS(t *testing.T) {
	cert := newNodeCA(t).issue(t, nodeTemplate(t, "node-a")).Leaf
	for _, state := range []*tls.ConnectionState{
		nil, {}, {PeerCertificates: []*x509.Certificate{cert}}, {VerifiedChains: [][]*x509.Certificate{{}}},
		{VerifiedChains: [][]*x509.Certificate{{cert}}, DidResume: true},
	} {
		_, err := AttestedNodeFromTLS(state, NodeCertificateOptions{})
		wantCheck(t, err, checkNodeCertificate)
	}
	state := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}
	if node, err := AttestedNodeFromTLS(state, NodeCertificateOptions{}); err != nil || node.Name != "node-a" {
		t.Errorf("got %+v, %v", node, err)
	}
}

// recordOf is the record of a certificate that was issued for the world's node.
func recordOf(cert *x509.Certificate) *CertificateRecord {
	return &CertificateRecord{
		CredentialID: credentialID(cert), NodeName: "node-a", NodeUID: "node-uid",
		Machine: "ek:sha256:aa", MachineUID: "machine-uid", ProviderID: "gce://p/z/a",
	}
}

func TestAttestedNodeFromRecord(t *testing.T) {
	ca := newNodeCA(t)
	cert := ca.issue(t, nodeTemplate(t, "node-a")).Leaf
	if id := credentialID(cert); len(id) != len("X509SHA256=")+64 || strings.ToLower(id[11:]) != id[11:] {
		t.Error(id)
	}
	node, err := AttestedNodeFromRecord(cert, recordOf(cert), NodeCertificateOptions{})
	if err != nil || *node != *attested() {
		t.Errorf("got %+v, %v, want %+v", node, err, attested())
	}
	for name, change := range map[string]func(r *CertificateRecord){
		"another certificate's":   func(r *CertificateRecord) { r.CredentialID = credentialID(ca.cert) },
		"no certificate's":        func(r *CertificateRecord) { r.CredentialID = "" },
		"another node's":          func(r *CertificateRecord) { r.NodeName = "node-b" },
		"in capitals":             func(r *CertificateRecord) { r.ProviderID = "gce://p/z/A" },
		"another provider ID's":   func(r *CertificateRecord) { r.ProviderID = "gce://p/z/b" },
		"without the provider ID": func(r *CertificateRecord) { r.ProviderID = "" },
		"without a machine":       func(r *CertificateRecord) { r.Machine = "" },
	} {
		t.Run(name, func(t *testing.T) {
			record := recordOf(cert)
			change(record)
			node, err := AttestedNodeFromRecord(cert, record, NodeCertificateOptions{})
			if wantCheck(t, err, checkNodeCertificate); node != nil {
				t.Errorf("refused with %+v", node)
			}
		})
	}
	_, err = AttestedNodeFromRecord(cert, nil, NodeCertificateOptions{})
	wantCheck(t, err, checkNodeCertificate)
	_, err = AttestedNodeFromRecord(ca.cert, recordOf(ca.cert), NodeCertificateOptions{})
	wantCheck(t, err, checkNodeCertificate)
}

// TestAttestedNodeFromRecordOfKubernetes: Kubernetes' own signer leaves the provider ID out of the
// certificate. The record has it, and the node is the machine with that provider ID.
func TestAttestedNodeFromRecordOfKubernetes(t *testing.T) {
	plain := nodeTemplate(t, "node-a")
	plain.ExtraExtensions = nil
	cert := newNodeCA(t).issue(t, plain).Leaf
	for _, id := range []string{"gce://p/z/a", ""} {
		record := recordOf(cert)
		record.ProviderID = id
		node, err := AttestedNodeFromRecord(cert, record, NodeCertificateOptions{})
		if want := attested(); err != nil || node.ProviderID != id || node.Machine != want.Machine {
			t.Errorf("%q: got %+v, %v", id, node, err)
		}
		if _, err := AttestedNodeFromRecord(cert, record, NodeCertificateOptions{RequireProviderID: true}); !errors.Is(err, oid.CheckProviderIDMissing) {
			t.Errorf("%q: required in the certificate: got %v", id, err)
		}
	}
}

// TestHandlerUnattested: a certificate with nothing but a node's name is refused, whichever CA
// signed it, unless InsecureAllowUnattested is set.
func TestHandlerUnattested(t *testing.T) {
	plain := nodeTemplate(t, "node-a")
	plain.ExtraExtensions = nil // as kube-controller-manager's signer issues it
	for name, tt := range map[string]struct {
		change func(c *ValidatorConfig)
		status int
	}{
		"by default": {nil, 401},
		"unattested": {func(c *ValidatorConfig) { c.Node.InsecureAllowUnattested = true }, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := serve(t, HandlerOptions{}, tt.change)
			certificate := w.ca.issue(t, plain)
			response, body := w.get(t, &certificate, "Bearer "+w.token(t))
			if response.StatusCode != tt.status {
				t.Errorf("%d %q, want %d", response.StatusCode, body, tt.status)
			}
			if tt.status != 200 {
				wantCheck(t, w.refused[0], checkFacts)
			}
		})
	}
}

// TestHandlerRecords: the records know which certificates were issued through attestation,
// to which machine and for which Node object.
func TestHandlerRecords(t *testing.T) {
	records := map[string]*CertificateRecord{}
	var fail error
	w := serve(t, HandlerOptions{FindRecord: func(_ context.Context, nodeName, id string) (*CertificateRecord, error) {
		if fail != nil {
			return records[id], fail
		}
		if r, ok := records[id]; ok && nodeName == "node-a" {
			return r, nil
		}
		return nil, ErrNotFound
	}}, func(c *ValidatorConfig) {
		c.Node.Require = FactAttestedUID | FactRegisteredMachine | FactRegisteredMachineUID
	})
	good := w.ca.issue(t, nodeTemplate(t, "node-a"))
	plain := nodeTemplate(t, "node-a")
	plain.ExtraExtensions = nil
	unrecorded := w.ca.issue(t, plain)
	record := recordOf(good.Leaf)
	records[record.CredentialID] = record
	want := func(certificate *tls.Certificate, status int, check Check) {
		t.Helper()
		w.refused = nil
		response, body := w.get(t, certificate, "Bearer "+w.token(t))
		if response.StatusCode != status {
			t.Errorf("%d %q, want %d", response.StatusCode, body, status)
		}
		if check != "" {
			wantCheck(t, w.refused[0], check)
		}
	}
	want(&good, 200, "")
	want(&unrecorded, 403, checkNodeCertificate)
	want(nil, 403, checkNodeCertificate)
	fail = errDead
	want(&good, 503, refusal.ErrRetry)
	fail = nil
	records[record.CredentialID] = nil
	want(&good, 503, refusal.ErrRetry)
	records[record.CredentialID] = record

	// The Node is made again, with all else as it was: the certificate that was issued for
	// the one before is worth nothing with a new token.
	w.objects.node.UID, w.claims.Kubernetes.Node.UID = "node-uid-2", "node-uid-2"
	want(&good, 401, checkAttestedUID)
	record.NodeUID = "node-uid-2"
	want(&good, 200, "")
	// The name goes to another machine, whose object has the provider ID of the first.
	w.machine.UID = "machine-uid-2"
	want(&good, 401, checkRegisteredMachineUID)
}

// TestHandlerFormerMachine: a machine whose certificate was recorded for a Node that its successor
// took over, with a registry that knows the successor by its provider ID alone.
func TestHandlerFormerMachine(t *testing.T) {
	record := &CertificateRecord{NodeName: "node-a", NodeUID: "node-uid", Machine: "ek:sha256:former", MachineUID: "former-uid"}
	w := serve(t, HandlerOptions{FindRecord: func(context.Context, string, string) (*CertificateRecord, error) { return record, nil }}, nil)
	plain := nodeTemplate(t, "node-a")
	plain.ExtraExtensions = nil
	former := w.ca.issue(t, plain)
	record.CredentialID = credentialID(former.Leaf)
	*w.machine = RegisteredMachine{ProviderID: "gce://p/z/a"}
	if response, body := w.get(t, &former, "Bearer "+w.token(t)); response.StatusCode != 401 {
		t.Fatalf("%d %q", response.StatusCode, body)
	}
	wantCheck(t, w.refused[0], checkFacts)
	w.machine.Identity = "ek:sha256:former" // then it is no former one
	if response, body := w.get(t, &former, "Bearer "+w.token(t)); response.StatusCode != 200 {
		t.Errorf("%d %q", response.StatusCode, body)
	}
}

// TestNewHandlerRecords: what can never be met is noticed when the handler is made.
func TestNewHandlerRecords(t *testing.T) {
	w := newWorld(t)
	records := func(context.Context, string, string) (*CertificateRecord, error) { return nil, ErrNotFound }
	for name, tt := range map[string]struct {
		require Facts
		opts    HandlerOptions
		want    error
	}{
		"the machine of no record":          {FactRegisteredMachine, HandlerOptions{}, refusal.CheckConfig},
		"the machine's object of no record": {FactRegisteredMachineUID, HandlerOptions{}, refusal.CheckConfig},
		"the Node's UID of no record":       {FactAttestedUID | FactNodeName, HandlerOptions{}, refusal.CheckConfig},
		"the certificate's provider ID":     {FactCertificateProviderID | FactRegisteredProviderID, HandlerOptions{}, nil},
		"the machine of a record":           {FactRegisteredMachine, HandlerOptions{FindRecord: records}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			config := w.strictConfig()
			config.Node.Require = tt.require
			if _, err := NewHandler(w.strictWith(t, config), http.NotFoundHandler(), tt.opts); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}
