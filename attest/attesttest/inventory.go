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
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// inventory is what a [ControlPlane] and a [World] know: who may be which node.
type inventory struct {
	mu    sync.Mutex
	known map[string]csr.Machine // by node name
	down  bool                   // it does not answer
	// admits says whether that machine is the one that was verified.
	admits func(m *csr.Machine, r *attest.Result) bool
}

var errDown = errors.New("attesttest: the inventory does not answer")

// machine is for csr.Policy.
func (i *inventory) machine(_ context.Context, nodeName string, _ *csr.Request) (*csr.Machine, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		return nil, errDown
	}
	m, ok := i.known[nodeName]
	if !ok {
		return nil, csr.ErrNoMachine
	}
	return &m, nil
}

// authorize admits a machine as its own node.
func (i *inventory) authorize(ctx context.Context, r *attest.Result, _ *csr.Request) (*attest.Authorization, error) {
	m, err := i.machine(ctx, r.NodeName, nil)
	if errors.Is(err, errDown) {
		return nil, err
	}
	if err != nil || !i.admits(m, r) {
		return nil, attest.NotMember("machine " + string(r.Machine) + " is not that of node " + r.NodeName)
	}
	return &attest.Authorization{ProviderID: m.ProviderID, DNSNames: m.DNSNames, IPAddresses: m.IPAddresses}, nil
}

// newClusterCA makes a self-signed CA on P-256.
func newClusterCA(signers []string, now func() time.Time) (*csr.CA, *x509.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "attesttest cluster CA"},
		NotBefore: now().AddDate(0, 0, -1), NotAfter: now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	ca, err := csr.NewCA([]*x509.Certificate{cert}, key, csr.CAConfig{SignerNames: signers, Now: now})
	return ca, cert, err
}
