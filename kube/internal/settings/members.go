package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/kube/internal/members"
)

// Scope says which identities the registry of a kind of evidence holds, without the cluster.
func (s *Settings) Scope(kind string) membership.Scope {
	switch {
	case kind != tpm.Provider:
		return membership.Scope{Provider: kind, Road: attest.RoadDocument}
	case s.Membership.Road == attest.RoadEK.String():
		return membership.Scope{Road: attest.RoadEK, IdentityClass: s.Membership.IdentityClass}
	}
	return membership.Scope{Road: attest.RoadAK, IdentityClass: s.Membership.IdentityClass}
}

// OwnSigners returns the signers that the node-attestation-signer serves: all but Kubernetes' own.
// It verifies each answer again with the same settings, and issues by csr.CA,
// which binds the name (membership.FirstUseConfig.OwnSignersElsewhere).
func (s *Settings) OwnSigners() []string {
	return slices.DeleteFunc(slices.Clone(s.Signers.Names), kubernetesOwn)
}

// OpenRegistry opens the registry of a scope. stale is membership.FirstUseConfig.Stale.
type OpenRegistry func(scope membership.Scope) (registry membership.Registry, stale membership.Lookups, err error)

// NewAuthorizer makes the authorizer, with a registry for each kind of evidence. with changes the
// configuration of each, such as clusterapi.Slots.FirstUse.
func (s *Settings) NewAuthorizer(open OpenRegistry, nodeExists func(ctx context.Context, nodeName string) (bool, error),
	with ...func(membership.FirstUseConfig) membership.FirstUseConfig) (*members.Authorizer, error) {
	ids, err := s.ClusterIDs()
	if err != nil {
		return nil, err
	}
	config := members.Config{Mode: s.Membership.Mode, Kind: s.Membership.Kind, Now: s.now}
	for _, kind := range s.Opened() {
		scope := s.Scope(kind)
		scope.Cluster = ids[0] // not recorded: each cluster has its records in its own API server
		registry, stale, err := open(scope)
		if err != nil {
			return nil, fmt.Errorf("settings: membership: %s: %w", kind, err)
		}
		first := membership.FirstUseConfig{Registry: registry, Stale: stale, NodeExists: nodeExists,
			MaxLifetime: s.Signers.MaxLifetime.Duration, MaxRecoveryLifetime: s.Signers.MaxRecoveryLifetime.Duration, OwnSignersElsewhere: s.OwnSigners(), Now: s.now}
		for _, change := range with {
			first = change(first)
		}
		config.Registries = append(config.Registries, first)
	}
	if at := s.Membership.RestoredAt; at != nil {
		config.FirstUseAfter = at.Add(s.Signers.MaxLifetime.Duration)
	}
	m, err := members.New(config)
	if err != nil {
		return nil, fmt.Errorf("settings: membership: %w", err)
	}
	return m, nil
}
