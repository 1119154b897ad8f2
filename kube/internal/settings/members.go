package settings

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// Scope is what identities the registry holds.
func (s *Settings) Scope() membership.Scope {
	scope := membership.Scope{Road: attest.RoadAK, IdentityClass: s.Membership.IdentityClass}
	if s.Membership.Road == attest.RoadEK.String() {
		scope.Road = attest.RoadEK
	}
	return scope
}

// Members decides who may be which node: an attest.Authorizer. Whoever is admitted is
// recorded, those of the inventory too, so that certificates are known by their machine.
type Members struct {
	*membership.FirstUse
	mode     string
	registry membership.Registry
	// paused is until when nobody is admitted by first use.
	paused time.Time
	now    func() time.Time
}

// OwnSigners are the signers that the node-attestation-signer serves: those that are not
// Kubernetes' own.
func (s *Settings) OwnSigners() []string {
	return slices.DeleteFunc(slices.Clone(s.Signers.Names), func(name string) bool { return csr.ProviderOf(name) == "" })
}

// NewMembers makes the authorizer over a registry. stale answers for hellos, out of a cache;
// nil means the registry.
func (s *Settings) NewMembers(registry membership.Registry, stale membership.Lookups, nodeExists func(ctx context.Context, nodeName string) (bool, error)) (*Members, error) {
	first, err := membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, Stale: stale, NodeExists: nodeExists, MaxLifetime: s.Signers.MaxLifetime.Duration,
		MaxRecoveryLifetime: s.Signers.MaxRecoveryLifetime.Duration, OwnSigners: s.OwnSigners()})
	if err != nil {
		return nil, fmt.Errorf("settings: membership: %w", err)
	}
	m := &Members{FirstUse: first, mode: s.Membership.Mode, registry: registry, now: time.Now}
	if at := s.Membership.RestoredAt; at != nil {
		m.paused = at.Add(s.Signers.MaxLifetime.Duration)
	}
	return m, nil
}

// Authorize admits the machine that the inventory names for the node, and one that it does
// not name as the mode says.
func (m *Members) Authorize(ctx context.Context, r *attest.Result, request *csr.Request) (*attest.Authorization, error) {
	machine := r.Checked().Machine()
	switch {
	case machine.Identity != "" && machine.Identity != string(r.Machine):
		return nil, attest.NotMember("machine " + string(r.Machine) + ", where the inventory has " + machine.Identity + " for node " + r.NodeName)
	case machine.Identity == "" && m.mode == ModeInventory:
		return nil, attest.NotMember("machine " + string(r.Machine) + ", where the inventory has no identity for node " + r.NodeName)
	case machine.Identity == "" && (m.mode == ModeApproval || m.now().Before(m.paused)):
		record, err := m.registry.Lookup(ctx, r.NodeName)
		if err != nil {
			return nil, err
		}
		if record == nil || record.State != membership.StateBound {
			return nil, m.unknown(r)
		}
	}
	return m.FirstUse.Authorize(ctx, r, request)
}

// unknown is why a machine is not admitted that neither the inventory names nor a record.
func (m *Members) unknown(r *attest.Result) error {
	if m.mode == ModeApproval {
		return attest.NotMember("machine " + string(r.Machine) + ", which nobody has approved as node " + r.NodeName)
	}
	return &attest.Error{Check: membership.CheckRegistryResting, Got: "machine " + string(r.Machine) + ", unknown as node " + r.NodeName,
		Want: "one that is recorded, or first use after " + m.paused.Format(time.RFC3339) + ", as etcd was restored", Err: csr.ErrRetry}
}
