package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// FindMachine finds the machine for a node, for csr.Policy.Machines.
type FindMachine = func(ctx context.Context, q csr.Question) (*csr.Machine, error)

// Policy returns the policy of a cluster ([Settings.ClusterIDs]) for requests to signers; no signers
// means Signers.Names.
func (s *Settings) Policy(clusterIDs []string, machines FindMachine, signers ...string) *csr.Policy {
	if len(signers) == 0 {
		signers = s.Signers.Names
	}
	p := &csr.Policy{
		ClusterIDs: clusterIDs, SignerNames: signers, Machines: machines,
		ReservedIPs: s.Signers.ReservedIPs, ReservedDNSNames: s.Signers.ReservedDNSNames,
		RequireProviderID: s.Signers.RequireProviderID && !slices.Contains(signers, csr.SignerKubeletServing),
	}
	if slices.ContainsFunc(signers, kubernetesOwn) { // node-attestation-signer shortens the lifetime instead
		p.MaxLifetime, p.BuiltInSignerDuration = s.Signers.MaxLifetime.Duration, s.Signers.BuiltInDuration.Duration
	}
	return p
}

// Verifier makes the verifier of requests to signers; no signers means Signers.Names.
func (s *Settings) Verifier(ring *attest.KeyRing, machines FindMachine, members attest.Authorizer, signers ...string) (*attest.Verifier, error) {
	kinds, err := s.Kinds()
	if err != nil {
		return nil, err
	}
	ids, err := s.ClusterIDs()
	if err != nil {
		return nil, err
	}
	verifier, err := attest.NewVerifier(attest.VerifierConfig{
		KeyRing: ring, Kinds: kinds, Policy: s.Policy(ids, machines, signers...),
		Authorizer: members, RequireTPMResident: s.TPM.RequireResident, Now: s.now,
	})
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return verifier, nil
}
