package attesttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
)

// ControlPlane admits nodes that it knows. It is safe for use from many
// goroutines.
type ControlPlane struct {
	Verifier *attest.Verifier
	// Config is what Verifier was made of, for a second verifier that shares the
	// key ring or differs in one thing.
	Config attest.VerifierConfig
	// TPM is what the one kind of evidence in Config was made of.
	TPM tpm.KindConfig
	// Ring is the key ring, with one key.
	Ring *attest.KeyRing
	// CA issues the certificates; CACert is its certificate.
	CA     *csr.CA
	CACert *x509.Certificate

	mu    sync.Mutex
	shift time.Duration
	known map[string]member
}

// member is a machine that the control plane knows.
type member struct {
	machine  attest.Identity
	provider string
	san      csr.Machine
}

// NewControlPlane returns a control plane that trusts the issuers of the given
// nodes' AK or EK certificates, each under the node's Profile or EKProfile, and EKs
// that come without one; and admits these nodes, each as the machine that its AK
// certificate names or its EK is. It opens the roads that these nodes go.
func NewControlPlane(t testing.TB, nodes ...*Node) *ControlPlane {
	t.Helper()
	c, err := OpenControlPlane(nodes...)
	if err != nil {
		t.Fatalf("attesttest: %v", err)
	}
	return c
}

// OpenControlPlane is [NewControlPlane] for use outside tests.
func OpenControlPlane(nodes ...*Node) (*ControlPlane, error) {
	c := &ControlPlane{known: map[string]member{}}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now().Add(-time.Hour)))
	if err != nil {
		return nil, err
	}
	c.Ring = ring
	c.Config = attest.VerifierConfig{
		ClusterIDs: []string{ClusterID},
		KeyRing:    ring,
		Policy: &csr.Policy{
			SignerNames: []string{csr.SignerClientTPM, csr.SignerServingTPM},
			Machines:    c.machine,
		},
		Authorizer: attest.AuthorizerFunc(c.authorize),
		Now:        c.Now,
	}
	var eks tpmcert.EKVerifierConfig
	for _, n := range nodes {
		if err := c.Admit(n); err != nil {
			return nil, err
		}
		if n.Road == attest.RoadAK {
			c.addIssuer(n)
			continue
		}
		eks.Issuers = append(eks.Issuers, tpmcert.EKIssuer{Roots: n.Roots(), Profile: n.EKProfile})
		if n.bareEK {
			eks.Allowed = append(eks.Allowed, c.known[n.Name].machine)
		}
	}
	if len(eks.Issuers) != 0 {
		if c.TPM.EKs, err = tpmcert.NewEKVerifier(eks); err != nil {
			return nil, err
		}
	}
	if err := c.makeCA(); err != nil {
		return nil, err
	}
	kind, err := tpm.NewKind(c.TPM)
	if err != nil {
		return nil, err
	}
	c.Config.Kinds = []attest.Kind{kind}
	c.Verifier, err = attest.NewVerifier(c.Config)
	return c, err
}

// makeCA makes a self-signed P-256 CA.
func (c *ControlPlane) makeCA() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "attesttest cluster CA"},
		NotBefore:             time.Now().Add(-24 * time.Hour),
		NotAfter:              time.Now().Add(10 * 365 * 24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if c.CACert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	c.CA, err = csr.NewCA([]*x509.Certificate{c.CACert}, key, csr.CAConfig{
		SignerNames: []string{csr.SignerClientTPM, csr.SignerServingTPM}, Now: c.Now})
	return err
}

// Now is the control plane's clock.
func (c *ControlPlane) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.shift)
}

// Advance moves the clock.
func (c *ControlPlane) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shift += d
}

// addIssuer trusts a node's issuer of AK certificates. Nodes of one profile have one
// issuer, with the roots of them all.
func (c *ControlPlane) addIssuer(n *Node) {
	for i := range c.TPM.AKIssuers {
		if known := &c.TPM.AKIssuers[i]; reflect.DeepEqual(known.Profile, n.Profile) {
			known.Roots = append(known.Roots, n.Roots()...)
			return
		}
	}
	c.TPM.AKIssuers = append(c.TPM.AKIssuers, tpmcert.Issuer{Roots: n.Roots(), Profile: n.Profile})
}

// Admit makes a node known: its name, its provider ID and the identity of its
// machine. It reads the certificate, or the EK, out of a hello. For a node that is known
// already it replaces what was known.
func (c *ControlPlane) Admit(n *Node) error {
	identity, err := n.identity()
	if err != nil {
		return err
	}
	names, ips, err := n.subjectAltNames()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[n.Name] = member{identity, n.ProviderID, csr.Machine{Name: "machine-of-" + n.Name, UID: "uid-of-" + n.Name, NodeName: n.Name,
		ProviderID: n.ProviderID, DNSNames: names, IPAddresses: ips, BootstrapReady: true}}
	return nil
}

// Forget makes a node unknown again, as when its machine is gone.
func (c *ControlPlane) Forget(nodeName string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, nodeName)
}

func (c *ControlPlane) machine(_ context.Context, nodeName string, _ *csr.Request) (*csr.Machine, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.known[nodeName]
	if !ok {
		return nil, csr.ErrNoMachine
	}
	return &m.san, nil
}

func (c *ControlPlane) authorize(_ context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, ok := c.known[r.NodeName]
	if !ok || m.machine != r.Machine {
		return nil, attest.NotMember("machine " + string(r.Machine) + " is not that of node " + r.NodeName)
	}
	return &attest.Authorization{ProviderID: m.provider, DNSNames: m.san.DNSNames, IPAddresses: m.san.IPAddresses}, nil
}

// Challenge challenges a node's hello.
func (c *ControlPlane) Challenge(ctx context.Context, n *Node) ([]byte, error) {
	hello, err := n.Hello(ctx, c.Now())
	if err != nil {
		return nil, err
	}
	return c.Verifier.Challenge(ctx, hello)
}

// Evidence runs the join up to the request with the answer.
func (c *ControlPlane) Evidence(ctx context.Context, n *Node) (*csr.Request, error) {
	challenge, err := c.Challenge(ctx, n)
	if err != nil {
		return nil, err
	}
	return n.Answer(ctx, challenge, c.Now())
}

// Join runs the whole join: hello, challenge, answer, verification, certificate.
func (c *ControlPlane) Join(ctx context.Context, n *Node) (*csr.Issued, error) {
	request, err := c.Evidence(ctx, n)
	if err != nil {
		return nil, err
	}
	result, err := c.Verifier.Verify(ctx, request)
	if err != nil {
		return nil, err
	}
	return c.CA.Issue(ctx, result.Checked(), result.Verified())
}
