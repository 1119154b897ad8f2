package main

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
)

// window is how long a challenge can be answered.
const window = 10 * time.Minute

// controlPlane challenges, verifies and signs.
type controlPlane struct {
	clusterID string
	config    attest.VerifierConfig
	verifier  *attest.Verifier
	ca        *csr.CA
}

// newControlPlane returns a control plane that trusts the issuer's root and knows the
// machines. A real list is the Cluster API's Machines, or the cloud's instances.
func newControlPlane(issuerRoot *x509.Certificate, machines []membership.Member) (*controlPlane, error) {
	caCert, caKey, err := selfSigned("quickstart cluster CA")
	if err != nil {
		return nil, err
	}
	ca, err := csr.NewCA([]*x509.Certificate{caCert}, caKey, csr.CAConfig{SignerNames: []string{csr.SignerClientTPM}})
	if err != nil {
		return nil, err
	}
	clusterID, err := attest.ClusterID(caCert) // both sides are configured with it
	if err != nil {
		return nil, err
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(time.Now()))
	if err != nil {
		return nil, err
	}
	// Whose word on a TPM counts?
	evidence, err := tpm.NewKind(tpm.KindConfig{
		AKIssuers: []tpmcert.Issuer{{Roots: []*x509.Certificate{issuerRoot}, Profile: tpmcert.ProfileGoogle()}},
	})
	if err != nil {
		return nil, err
	}
	// May this machine be this node? Trust in the issuer alone would admit every machine
	// of the cloud. The list is asked at the hello already, and again when the answer has
	// passed every other check.
	members, err := membership.NewStaticList(machines)
	if err != nil {
		return nil, err
	}
	config := attest.VerifierConfig{
		ClusterIDs: []string{clusterID},
		KeyRing:    ring,
		Kinds:      []attest.Kind{evidence},
		Policy:     &csr.Policy{SignerNames: []string{csr.SignerClientTPM}, Machines: inventory(machines)},
		Authorizer: members,
		Window:     window,
	}
	verifier, err := attest.NewVerifier(config)
	if err != nil {
		return nil, err
	}
	return &controlPlane{clusterID: clusterID, config: config, verifier: verifier, ca: ca}, nil
}

// inventory answers the node policy: is there a machine for this node?
func inventory(machines []membership.Member) func(context.Context, string, *csr.Request) (*csr.Machine, error) {
	return func(_ context.Context, nodeName string, _ *csr.Request) (*csr.Machine, error) {
		for _, m := range machines {
			if m.NodeName == nodeName {
				return &csr.Machine{Name: nodeName, NodeName: nodeName, ProviderID: m.ProviderID, BootstrapReady: true}, nil
			}
		}
		return nil, csr.ErrNoMachine
	}
}
