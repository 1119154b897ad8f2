package settings

import (
	"cmp"
	"context"
	"errors"
	"github.com/nodeattest/nodeattest/refusal"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// TestMembers has a node say hello under each mode, with and without its identity in the
// inventory.
func TestMembers(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK})
	plane := attesttest.NewControlPlane(t, node)
	ek, err := tpmcert.ParseEK(node.TPM.EKCertificate(tpmsim.RSA2048).Raw)
	if err != nil {
		t.Fatal(err)
	}
	ours, other := string(ek.Identity()), "ek:sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for name, row := range map[string]struct {
		mode, identity string
		approved       attest.Identity // by an operator
		restored       time.Duration   // how long ago, of maxLifetime's 24 h
		want           bool
		check          attest.Check // "": that of membership
	}{
		"inventory: its identity":          {mode: ModeInventory, identity: ours, want: true},
		"inventory: another's":             {mode: ModeInventory, identity: other},
		"inventory: none":                  {mode: ModeInventory},
		"first use: its identity":          {mode: ModeFirstUse, identity: ours, want: true},
		"first use: another's":             {mode: ModeFirstUse, identity: other},
		"first use: none":                  {mode: ModeFirstUse, want: true},
		"approval: its identity":           {mode: ModeApproval, identity: ours, want: true},
		"approval: another's":              {mode: ModeApproval, identity: other},
		"approval: not yet":                {mode: ModeApproval},
		"approval: it is approved":         {mode: ModeApproval, approved: attest.Identity(ours), want: true},
		"approval: another is approved":    {mode: ModeApproval, approved: attest.Identity(other)},
		"inventory: none, and it is bound": {mode: ModeInventory, approved: attest.Identity(ours)},
		"restored: its identity":           {mode: ModeFirstUse, restored: time.Hour, identity: ours, want: true},
		"restored: none":                   {mode: ModeFirstUse, restored: time.Hour, check: membership.CheckRegistryResting},
		"restored: it is bound":            {mode: ModeFirstUse, restored: time.Hour, approved: attest.Identity(ours), want: true},
		"restored: another is bound":       {mode: ModeFirstUse, restored: time.Hour, approved: attest.Identity(other)},
		"restored: the last second":        {mode: ModeFirstUse, restored: 24*time.Hour - time.Second, check: membership.CheckRegistryResting},
		"restored: a day ago":              {mode: ModeFirstUse, restored: 24 * time.Hour, want: true},
		"restored: it is not approved":     {mode: ModeApproval, restored: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Settings{Cluster: Cluster{IDs: []string{attesttest.ClusterID}}, TPM: TPM{AllowedEKs: []attest.Identity{attest.Identity(ours)}}, Membership: Membership{Mode: row.mode, Road: "ek", IdentityClass: "RSA-2048"}}
			s.complete()
			if row.restored != 0 {
				s.Membership.RestoredAt = &metav1.Time{Time: plane.Now().Add(-row.restored)}
			}
			scope := s.Scope(tpm.Provider)
			scope.Cluster = attesttest.ClusterID
			registry, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{Now: plane.Now})
			if err != nil {
				t.Fatal(err)
			}
			machine := csr.Machine{Name: node.Name, NodeName: node.Name, UID: "uid-1", Identity: row.identity, ProviderID: node.ProviderID, BootstrapReady: true}
			if row.approved != "" {
				claim := membership.Claim{NodeName: node.Name, Machine: row.approved, MachineUID: machine.UID, ProviderID: machine.ProviderID}
				record, err := registry.Reserve(t.Context(), claim, plane.Now().Add(time.Minute))
				if err == nil {
					_, err = registry.Bind(t.Context(), record, time.Time{}, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			open := func(membership.Scope) (membership.Registry, membership.Lookups, error) { return registry, nil, nil }
			members, err := s.NewMembers(open, func(context.Context, string) (bool, error) { return false, nil })
			if err != nil {
				t.Fatal(err)
			}
			members.now = plane.Now
			config := plane.Config
			config.Authorizer, config.Policy = members, config.Policy.Clone()
			config.Policy.Machines = func(context.Context, string, *csr.Request) (*csr.Machine, error) { return &machine, nil }
			verifier, err := attest.NewVerifier(config)
			if err != nil {
				t.Fatal(err)
			}
			hello, err := node.Hello(t.Context(), plane.Now())
			if err != nil {
				t.Fatal(err)
			}
			_, err = verifier.Challenge(t.Context(), hello)
			check := cmp.Or(row.check, attest.CheckMembership)
			if row.want != (err == nil) || err != nil && (!errors.Is(err, check) || errors.Is(err, refusal.ErrRetry) != (row.check != "")) {
				t.Errorf("got %v, want a challenge: %t, or %s", err, row.want, check)
			}
		})
	}
}
