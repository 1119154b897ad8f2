package settings

import (
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// Evidence is the providers that decide requests, and their names.
type Evidence struct {
	Providers *csr.Providers
	Names     []string
}

// Policy returns the policy for requests to signers, or to those of the file if none is given.
func (s *Settings) Policy(machines *Machines, signers ...string) *csr.Policy {
	if len(signers) == 0 {
		signers = s.Signers.Names
	}
	p := &csr.Policy{
		SignerNames: signers, Machines: machines.Machine,
		ReservedIPs: s.Signers.ReservedIPs, ReservedDNSNames: s.Signers.ReservedDNSNames,
	}
	// Our own signers shorten what is asked for, which the API limits to 10 minutes or more.
	if slices.ContainsFunc(signers, func(name string) bool { return csr.ProviderOf(name) == "" }) {
		p.MaxExpiration, p.BuiltInSignerDuration = s.Signers.MaxLifetime.Duration, s.Signers.BuiltInDuration.Duration
	}
	return p
}

// Evidence makes what decides requests to signers, or to those of the file if none is given.
func (s *Settings) Evidence(ring *attest.KeyRing, machines *Machines, members attest.Authorizer, signers ...string) (*Evidence, error) {
	kinds, err := s.Kinds()
	if err != nil {
		return nil, err
	}
	ids, err := s.ClusterIDs()
	if err != nil {
		return nil, err
	}
	policy := s.Policy(machines, signers...)
	verifier, err := attest.NewVerifier(attest.VerifierConfig{
		ClusterIDs: ids, KeyRing: ring, Kinds: kinds, Policy: policy,
		Authorizer: members, RequireTPMResident: s.TPM.RequireResident, Now: s.now,
	})
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	e := new(Evidence)
	for _, kind := range kinds {
		e.Names = append(e.Names, kind.Describe().Provider)
	}
	config := csr.ProvidersConfig{Providers: verifier.Registrations(), AuthorizedAttestors: e.Names}
	if slices.Contains(policy.SignerNames, csr.SignerKubeAPIServerClientKubelet) {
		config.BuiltInClient = e.Names
	}
	if e.Providers, err = csr.NewProviders(config); err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	return e, nil
}
