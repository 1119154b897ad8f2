package members

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
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
		mode     Mode
		identity string
		approved attest.Identity // by an operator
		restored time.Duration   // how long ago, of maxLifetime's 24 h
		want     bool
		check    attest.Check // "": that of membership
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
			config := Config{Mode: row.mode, Now: plane.Now}
			if row.restored != 0 {
				config.FirstUseAfter = plane.Now().Add(24*time.Hour - row.restored)
			}
			scope := membership.Scope{Road: attest.RoadEK, IdentityClass: "RSA-2048"}
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
			config.Registries = []membership.FirstUseConfig{{Registry: registry, MaxLifetime: 24 * time.Hour,
				NodeExists: func(context.Context, string) (bool, error) { return false, nil }}}
			members, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			of := plane.Config
			of.Authorizer, of.Policy = members, of.Policy.Clone()
			of.Policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) { return &machine, nil }
			verifier, err := attest.NewVerifier(of)
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

// TestNew refuses what cannot work, each thing alone.
func TestNew(t *testing.T) {
	first := func(scope membership.Scope) membership.FirstUseConfig {
		registry, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return membership.FirstUseConfig{Registry: registry, MaxLifetime: time.Hour, NodeExists: NodeExists()}
	}
	byTPM, byRack := first(membership.Scope{}), first(membership.Scope{Provider: "rack", Road: attest.RoadDocument})
	for name, row := range map[string]struct {
		config Config
		want   string // "": it is accepted
	}{
		"one kind":              {Config{Mode: ModeFirstUse, Registries: []membership.FirstUseConfig{byTPM}}, ""},
		"two kinds":             {Config{Mode: ModeFirstUse, Kind: "rack", Registries: []membership.FirstUseConfig{byTPM, byRack}}, ""},
		"no mode":               {Config{Registries: []membership.FirstUseConfig{byTPM}}, "Mode"},
		"another mode":          {Config{Mode: "firstuse", Registries: []membership.FirstUseConfig{byTPM}}, "firstuse"},
		"no registry":           {Config{Mode: ModeInventory}, "Registries"},
		"two of a kind":         {Config{Mode: ModeInventory, Registries: []membership.FirstUseConfig{byTPM, byTPM}}, "two for tpm"},
		"first use of no kind":  {Config{Mode: ModeFirstUse, Registries: []membership.FirstUseConfig{byRack}}, `"tpm"`},
		"inventory of no kind":  {Config{Mode: ModeInventory, Registries: []membership.FirstUseConfig{byRack}}, ""},
		"a registry of nothing": {Config{Mode: ModeInventory, Registries: []membership.FirstUseConfig{{}}}, "Registries[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(row.config)
			if (err == nil) != (row.want == "") || err != nil && (!errors.Is(err, refusal.CheckConfig) || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want an error with %q", err, row.want)
			}
		})
	}
	for name, m := range map[string]*Members{"nil": nil, "zero": {}} {
		if err := m.CheckAuthorizer(attest.Opening{}); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := m.Authorize(t.Context(), new(attest.Result)); !errors.Is(err, attest.CheckMembership) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
