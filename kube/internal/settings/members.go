package settings

import (
	"context"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
)

// Scope says which identities the registry of a kind of evidence holds, without the cluster.
func (s *Settings) Scope(provider string) membership.Scope {
	switch {
	case provider != tpm.Provider:
		return membership.Scope{Provider: provider, Road: attest.RoadDocument}
	case s.Membership.Road == attest.RoadEK.String():
		return membership.Scope{Road: attest.RoadEK, IdentityClass: s.Membership.IdentityClass}
	}
	return membership.Scope{Road: attest.RoadAK, IdentityClass: s.Membership.IdentityClass}
}

// Members decides who may be which node: an attest.Authorizer. Every machine that is admitted
// is recorded, including those of the inventory, so that certificates are known by their
// machine. Each kind of evidence has its own registry over the same objects, so that a machine
// recorded by one kind is refused by another.
type Members struct {
	mode, evidence string
	byKind         map[string]*members
	// paused is the time until which nobody is admitted by first use.
	paused time.Time
	now    func() time.Time
}

// members is the membership for one kind of evidence.
type members struct {
	*membership.FirstUse
	registry membership.Registry
}

// OwnSigners returns the signers that the node-attestation-signer serves: those that are not
// Kubernetes' own. It verifies each answer again with the same settings, and issues by csr.CA,
// which binds the name (membership.FirstUseConfig.OwnSignersElsewhere).
func (s *Settings) OwnSigners() []string {
	return slices.DeleteFunc(slices.Clone(s.Signers.Names), func(name string) bool { return csr.ProviderOf(name) == "" })
}

// OpenRegistry opens the registry of a scope. stale is membership.FirstUseConfig.Stale.
type OpenRegistry func(scope membership.Scope) (registry membership.Registry, stale membership.Lookups, err error)

// NewMembers makes the authorizer, with a registry for each kind of evidence.
func (s *Settings) NewMembers(open OpenRegistry, nodeExists func(ctx context.Context, nodeName string) (bool, error)) (*Members, error) {
	ids, err := s.ClusterIDs()
	if err != nil {
		return nil, err
	}
	m := &Members{mode: s.Membership.Mode, evidence: s.Membership.Evidence, byKind: map[string]*members{}, now: time.Now}
	for _, provider := range s.Opened() {
		scope := s.Scope(provider)
		scope.Cluster = ids[0] // it is in no record: those of another cluster are in its API server
		registry, stale, err := open(scope)
		if err != nil {
			return nil, fmt.Errorf("settings: membership: %s: %w", provider, err)
		}
		first, err := membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, Stale: stale, NodeExists: nodeExists, MaxLifetime: s.Signers.MaxLifetime.Duration,
			MaxRecoveryLifetime: s.Signers.MaxRecoveryLifetime.Duration, OwnSignersElsewhere: s.OwnSigners()})
		if err != nil {
			return nil, fmt.Errorf("settings: membership: %s: %w", provider, err)
		}
		m.byKind[provider] = &members{first, registry}
	}
	if at := s.Membership.RestoredAt; at != nil {
		m.paused = at.Add(s.Signers.MaxLifetime.Duration)
	}
	return m, nil
}

// CheckAuthorizer checks each kind's registry. If machines are admitted by their identity in
// the inventory, or by an operator, they are not counted: then it does not matter that a
// machine may have several identities.
func (m *Members) CheckAuthorizer(open []attest.OpenRoad) error {
	for provider, of := range m.byKind {
		roads := slices.Clone(open)
		for i := range roads {
			if !m.firstUse(provider) {
				roads[i].ManyIdentities = ""
			}
		}
		if err := of.CheckAuthorizer(roads); err != nil {
			return fmt.Errorf("%s: %w", provider, err)
		}
	}
	return nil
}

// firstUse reports whether machines that are not known in advance are admitted by evidence of
// a kind.
func (m *Members) firstUse(provider string) bool {
	return m.mode == ModeFirstUse && provider == m.evidence
}

// Authorize admits the machine that the inventory names for the node; if the inventory names
// none, the mode decides. The verifier has already checked that the evidence is of the kind
// that the inventory names (csr.Machine).
func (m *Members) Authorize(ctx context.Context, r *attest.Result) (*attest.Authorization, error) {
	machine := r.Checked().Machine()
	of := m.byKind[r.Provider]
	switch {
	case of == nil:
		return nil, attest.NotMember("machine " + string(r.Machine) + " by " + r.Provider + ", which is no kind of evidence that is configured")
	case machine.Identity != "" && machine.Identity != string(r.Machine):
		return nil, attest.NotMember("machine " + string(r.Machine) + ", where the inventory has " + machine.Identity + " for node " + r.NodeName)
	case machine.Identity == "" && (m.mode == ModeApproval || m.firstUse(r.Provider) && m.now().Before(m.paused)):
		record, err := of.registry.Lookup(ctx, r.NodeName)
		if err != nil {
			return nil, err
		}
		if record == nil || record.State != membership.StateBound {
			return nil, m.unknown(r)
		}
		if m.firstUse(r.Provider) {
			return of.FirstUse.Authorize(ctx, r, request)
		}
	case machine.Identity == "" && !m.firstUse(r.Provider):
		return nil, attest.NotMember("machine " + string(r.Machine) + " by " + r.Provider + ", where the inventory has no identity for node " + r.NodeName)
	case machine.Identity == "":
		return of.FirstUse.Authorize(ctx, r, request)
	}
	named := *r // by the inventory or an operator: see CheckAuthorizer
	named.ManyIdentities = ""
	return of.FirstUse.Authorize(ctx, &named, request)
}

// unknown says why a machine named by neither the inventory nor a record is not admitted.
func (m *Members) unknown(r *attest.Result) error {
	if m.mode == ModeApproval {
		return attest.NotMember("machine " + string(r.Machine) + ", which nobody has approved as node " + r.NodeName)
	}
	return &attest.Error{Check: membership.CheckRegistryResting, Got: "machine " + string(r.Machine) + ", unknown as node " + r.NodeName,
		Want: "one that is recorded, or first use after " + m.paused.Format(time.RFC3339) + ", as etcd was restored", Err: refusal.ErrRetry}
}
