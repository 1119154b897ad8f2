package attesttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
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
	// Config is Verifier's configuration, for a second verifier that shares the key ring or differs
	// in one field.
	Config attest.VerifierConfig
	// TPM is the configuration of the one kind of evidence in Config.
	TPM tpm.KindConfig
	// CA issues the certificates; CACert is its certificate.
	CA     *csr.CA
	CACert *x509.Certificate

	inventory
	identities map[string]attest.Identity // of the machines, by node name
	shift      time.Duration              // of the clock
}

// NewControlPlane returns a control plane that trusts the issuers of the given nodes' AK or EK
// certificates, each under the node's Profile or tpmcert.EKProfileTCG, and EKs that come without
// one. It admits these nodes, each as the machine that its AK certificate names or that its EK
// is. It opens the roads that these nodes take.
func NewControlPlane(t testing.TB, nodes ...*Node) *ControlPlane {
	t.Helper()
	return opened[*ControlPlane](t)(OpenControlPlane(nodes...))
}

// OpenControlPlane is [NewControlPlane] for use outside tests.
func OpenControlPlane(nodes ...*Node) (made *ControlPlane, err error) {
	defer caught(&err)
	c := &ControlPlane{identities: map[string]attest.Identity{}}
	c.known = map[string]*csr.Machine{}
	c.admits = func(m *csr.Machine, r *attest.Result) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.identities[m.NodeName] == r.Machine
	}
	c.Config = c.config([]string{csr.SignerClientTPM, csr.SignerServingTPM}, c.Now, attest.NewRingKey(time.Now().Add(-time.Hour)))
	c.Config.Authorizer = &authority{&c.inventory}
	var eks tpmcert.EKVerifierConfig
	for _, n := range nodes {
		if err := c.Admit(n); err != nil {
			return nil, err
		}
		if n.Road == attest.RoadAK {
			c.addIssuer(n)
			continue
		}
		eks.Issuers = append(eks.Issuers, tpmcert.EKIssuer{Roots: n.Roots(), Profile: tpmcert.EKProfileTCG()})
		if n.BareEK {
			eks.Allowed = append(eks.Allowed, c.identities[n.Name])
		}
	}
	if len(eks.Issuers) != 0 {
		c.TPM.EKs = must(tpmcert.NewEKVerifier(eks))
	}
	c.CA, c.CACert = newClusterCA(c.Config.Policy)
	c.Config.Kinds = []attest.Kind{must(tpm.NewKind(c.TPM))}
	c.Verifier = must(attest.NewVerifier(c.Config))
	return c, nil
}

// Now is the control plane's clock.
func (c *ControlPlane) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.shift)
}

// Advance moves the clock.
func (c *ControlPlane) Advance(d time.Duration) {
	c.locked(func() { c.shift += d })
}

// addIssuer trusts a node's issuer of AK certificates. Nodes with the same profile share one
// issuer, with the roots of all of them.
func (c *ControlPlane) addIssuer(n *Node) {
	for i := range c.TPM.AKIssuers {
		if known := &c.TPM.AKIssuers[i]; reflect.DeepEqual(known.Profile, n.Profile) {
			known.Roots = append(known.Roots, n.Roots()...)
			return
		}
	}
	c.TPM.AKIssuers = append(c.TPM.AKIssuers, tpmcert.Issuer{Roots: n.Roots(), Profile: n.Profile})
}

// Admit makes a node known: its name, its provider ID and the identity of its machine. It
// reads the certificate, or the EK, from a hello. It replaces the values of a node that is already
// known.
func (c *ControlPlane) Admit(n *Node) error {
	identity, err := n.identity()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identities[n.Name] = identity
	c.known[n.Name] = &csr.Machine{Name: "machine-of-" + n.Name, UID: "uid-of-" + n.Name, NodeName: n.Name,
		ProviderID: n.ProviderID, DNSNames: n.DNSNames, IPAddresses: n.IPAddresses, BootstrapReady: true}
	return nil
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
	return c.CA.Issue(ctx, result.Attested())
}

// inventory holds the machines of a [ControlPlane] or [World], by the nodes that they may be.
type inventory struct {
	mu    sync.Mutex
	known map[string]*csr.Machine // by node name, never changed in place
	down  bool                    // it does not answer
	// admits reports whether m is the verified machine.
	admits func(m *csr.Machine, r *attest.Result) bool
}

var errDown = errors.New("attesttest: the inventory does not answer")

// locked calls change under the mutex, which guards its owner's clock too.
func (i *inventory) locked(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// config configures a verifier of nodes from the inventory, without kinds of evidence or an authorizer.
// An error is a failure.
func (i *inventory) config(signers []string, now func() time.Time, keys ...attest.RingKey) attest.VerifierConfig {
	return attest.VerifierConfig{KeyRing: must(attest.NewStaticKeyRing(keys...)), Now: now,
		Policy: &csr.Policy{ClusterIDs: []string{ClusterID}, SignerNames: signers, Machines: i.machine, Now: now}}
}

// machine is for csr.Policy.
func (i *inventory) machine(_ context.Context, q csr.Question) (*csr.Machine, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		return nil, errDown
	}
	m, ok := i.known[q.NodeName]
	if !ok {
		return nil, csr.ErrNoMachine
	}
	return m, nil
}

// authority is an authorizer that admits the machines of an inventory.
type authority struct{ *inventory }

// AuthorizeHello refuses what Authorize refuses.
func (i *authority) AuthorizeHello(ctx context.Context, r *attest.Result) error {
	_, err := i.Authorize(ctx, r)
	return err
}

// Authorize admits a machine as its own node.
func (i *authority) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	m, err := i.machine(ctx, csr.Question{NodeName: r.NodeName})
	if errors.Is(err, errDown) {
		return nil, err
	}
	if err != nil || !i.admits(m, r) {
		return nil, attest.NotMember("machine " + string(r.Machine) + " is not that of node " + r.NodeName)
	}
	a := r.Admit(attest.KnownNode(m.NodeName))
	a.ProviderID, a.DNSNames, a.IPAddresses = m.ProviderID, m.DNSNames, m.IPAddresses
	return a, nil
}

// newKey makes a key on P-256. An error is a failure.
func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// newClusterCA makes a self-signed CA on P-256 for the cluster and the signers of a policy, with its clock.
// An error is a failure.
func newClusterCA(policy *csr.Policy) (*csr.CA, *x509.Certificate) {
	key := newKey()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "attesttest cluster CA"},
		NotBefore: policy.Now().AddDate(0, 0, -1), NotAfter: policy.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true}
	cert := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))))
	config := csr.CAConfig{ClusterIDs: policy.ClusterIDs, SignerNames: policy.SignerNames, Now: policy.Now}
	return must(csr.NewCA([]*x509.Certificate{cert}, key, config)), cert
}
