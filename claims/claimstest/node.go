package claimstest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/oid"
)

// certificateLifetime is the lifetime of a node's certificate.
const certificateLifetime = 24 * time.Hour

// Node is a machine that has attested as a node of a [Cluster]. For [Cluster.AddNode], the zero
// value of each field except Name is a sensible default.
type Node struct {
	// Name is the node's name. With a Record, this and the next two are the Record's.
	Name string
	// ProviderID is the one that was verified; "" means "claimstest://<name>".
	ProviderID string
	// Machine is the canonical identity that was verified; "" means a new one.
	Machine string
	// Certificate is the node's client certificate with its key; nil means a new one of the
	// cluster's own CA, valid for 24 hours. One that was issued elsewhere, such as by
	// attesttest.ControlPlane, needs CA and Record.
	Certificate *tls.Certificate
	// CA issued Certificate. It joins [Cluster.ClientCAs].
	CA *x509.Certificate
	// Record is the record of Certificate.
	Record *claims.CertificateRecord
	// Attested is what [claims.AttestedNodeFromRecord] makes of both, for
	// [claims.Validator.ValidateOnNode]. It is only set by AddNode.
	Attested *claims.AttestedNode
}

// AddNode adds a Node object, registers the machine for its name, and keeps the record of its
// certificate. It returns the node with all fields set. A node of that name is replaced: the Node
// object has another UID, and another machine is registered, but the earlier [Node] keeps its
// certificate and record, as the machine that had the name before does.
//
// A certificate without its CA and record is an error. One that does not match its record gives an
// error of [claims.AttestedNodeFromRecord].
func (c *Cluster) AddNode(n Node) (*Node, error) {
	switch given := n.Certificate != nil && len(n.Certificate.Certificate) > 0; {
	case given != (n.Record != nil) || given != (n.CA != nil):
		return nil, errors.New("claimstest: got one or two of Certificate, CA and Record, want all or none")
	case given:
		n.Name, n.ProviderID, n.Machine = n.Record.NodeName, n.Record.ProviderID, n.Record.Machine
	default:
		if err := c.certify(&n); err != nil {
			return nil, fmt.Errorf("claimstest: certificate of node %q: %w", n.Name, err)
		}
	}
	leaf, err := x509.ParseCertificate(n.Certificate.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("claimstest: certificate of node %q: %w", n.Name, err)
	}
	if n.Attested, err = claims.AttestedNodeFromRecord(leaf, n.Record, claims.NodeCertificateOptions{Now: c.now}); err != nil {
		return nil, err
	}
	c.Put("nodes", claims.Object{Name: n.Name, UID: n.Record.NodeUID, ProviderID: n.ProviderID})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cas.AddCert(n.CA)
	c.current.records[n.Record.CredentialID] = *n.Record
	c.current.machines[n.Name] = claims.RegisteredMachine{Identity: n.Machine, ProviderID: n.ProviderID, UID: n.Record.MachineUID}
	return &n, nil
}

// certify fills in a node that attested to this cluster.
func (c *Cluster) certify(n *Node) error {
	n.ProviderID, n.CA = cmp.Or(n.ProviderID, "claimstest://"+n.Name), c.ca.Leaf
	n.Machine = cmp.Or(n.Machine, fmt.Sprintf("ek:sha256:%x", sha256.Sum256([]byte(newUID())))) // of no EK
	providerID, err := oid.ProviderIDExtension(n.ProviderID)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := c.now()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:" + n.Name, Organization: []string{"system:nodes"}},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(certificateLifetime), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, ExtraExtensions: []pkix.Extension{providerID},
	}, c.ca.Leaf, key.Public(), c.ca.PrivateKey)
	if err != nil {
		return err
	}
	n.Certificate = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	n.Record = &claims.CertificateRecord{CredentialID: fmt.Sprintf("X509SHA256=%x", sha256.Sum256(der)),
		NodeName: n.Name, NodeUID: newUID(), Machine: n.Machine, MachineUID: newUID(), ProviderID: n.ProviderID}
	return nil
}

// newAuthority makes a CA that signs for attested nodes.
func newAuthority(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "claimstest CA of attested nodes"},
		NotBefore: now.AddDate(0, 0, -1), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &tls.Certificate{Leaf: cert, PrivateKey: key}, err
}

// Client returns a client that sends each request to a server of [httptest] from this node: over a
// connection of its own that the node's certificate opened, with the token as the bearer, if it is not
// "". A nil Node is a machine without a certificate.
func (n *Node) Client(server *httptest.Server, token string) *http.Client {
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	if n != nil && transport.TLSClientConfig != nil {
		transport.TLSClientConfig.Certificates = []tls.Certificate{*n.Certificate}
	}
	return &http.Client{Transport: bearer{transport, token}, Timeout: 30 * time.Second}
}

// bearer adds a token to each request.
type bearer struct {
	base  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.base.RoundTrip(r)
}
