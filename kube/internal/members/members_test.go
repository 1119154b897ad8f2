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
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// messages are the hello of a node and its answer to a challenge of the plane's.
func messages(t *testing.T, plane *attesttest.ControlPlane, node *attesttest.Node) (hello, answer *csr.Request) {
	t.Helper()
	hello = testkit.Must(node.Hello(t.Context(), plane.Now()))
	challenge := testkit.Must(plane.Verifier.Challenge(t.Context(), hello))
	return hello, testkit.Must(node.Answer(t.Context(), challenge, plane.Now()))
}

// TestMembers has a node say hello and answer under each mode, with and without its identity
// in the inventory: a machine that is refused is refused at the hello already.
func TestMembers(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{Road: attest.RoadEK})
	plane := attesttest.NewControlPlane(t, node)
	hello, answer := messages(t, plane, node)
	ek := testkit.Must(tpmcert.ParseEK(node.TPM.EKCertificate(tpmsim.RSA2048).Raw))
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
			scope := membership.Scope{Cluster: attesttest.ClusterID, Road: attest.RoadEK, IdentityClass: "RSA-2048"}
			registry := testkit.Must(membership.NewMemoryRegistry(scope, membership.RegistryOptions{Now: plane.Now}))
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
			members := testkit.Must(New(config))
			of := plane.Config
			of.Authorizer, of.Policy = members, of.Policy.Clone()
			of.Policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) { return &machine, nil }
			verifier := testkit.Must(attest.NewVerifier(of))
			_, atHello := verifier.Challenge(t.Context(), hello)
			result, atAnswer := verifier.Verify(t.Context(), answer)
			check := cmp.Or(row.check, attest.CheckMembership)
			for stage, err := range map[attest.Stage]error{attest.StageHello: atHello, attest.StageAnswer: atAnswer} {
				if row.want != (err == nil) || err != nil && (!errors.Is(err, check) || errors.Is(err, refusal.ErrRetry) != (row.check != "")) {
					t.Errorf("%s: got %v, want it admitted: %t, or %s", stage, err, row.want, check)
				}
			}
			if row.want && (result.Attested().Decision().Verdict != csr.VerdictApprove || result.Granted.ProviderID != machine.ProviderID) {
				t.Errorf("admitted, with %+v", result.Granted)
			}
			record, err := registry.Lookup(t.Context(), node.Name)
			if bound := record != nil && record.Machine == attest.Identity(ours); err != nil || bound != (row.want || row.approved == attest.Identity(ours)) {
				t.Errorf("the record: %+v, %v", record, err)
			}
		})
	}
}

// TestManyIdentities has a machine of an issuer that may certify several identities of one
// machine: it is a member where the inventory or an operator names it, for that node alone, and
// no first use counts it.
func TestManyIdentities(t *testing.T) {
	node := attesttest.NewNode(t, attesttest.NodeOptions{})
	other := attesttest.NewNode(t, attesttest.NodeOptions{TPM: node.TPM, Name: "node-2"})
	plane := attesttest.NewControlPlane(t, node, other)
	hello, answer := messages(t, plane, node)
	otherHello, otherAnswer := messages(t, plane, other)
	found, err := plane.Verifier.Verify(t.Context(), answer)
	if err != nil || found.ManyIdentities == "" {
		t.Fatalf("got %+v, %v, want a machine that may have several identities", found, err)
	}
	for name, mode := range map[string]Mode{"by the inventory": ModeInventory, "by an operator": ModeApproval} {
		t.Run(name, func(t *testing.T) {
			verifier, registry, err := manyIdentities(t, plane, mode, string(found.Machine))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verifier.Challenge(t.Context(), hello); err != nil {
				t.Errorf("its hello: %v", err)
			}
			if _, err := verifier.Challenge(t.Context(), otherHello); !errors.Is(err, attest.CheckMembership) {
				t.Errorf("its hello as another node: %v", err)
			}
			result, err := verifier.Verify(t.Context(), answer)
			if err != nil || result.Attested().Decision().Verdict != csr.VerdictApprove || result.ManyIdentities != found.ManyIdentities {
				t.Errorf("its answer: %+v, %v", result, err)
			}
			if result, err := verifier.Verify(t.Context(), otherAnswer); !errors.Is(err, attest.CheckMembership) {
				t.Errorf("its answer as another node: %+v, %v", result, err)
			}
			for nodeName, want := range map[string]bool{node.Name: true, other.Name: false} {
				if record, err := registry.Lookup(t.Context(), nodeName); err != nil || (record != nil) != want {
					t.Errorf("the record of %s: %+v, %v", nodeName, record, err)
				}
			}
		})
	}
	if _, _, err := manyIdentities(t, plane, ModeFirstUse, string(found.Machine)); !errors.Is(err, membership.CheckRegistryScope) {
		t.Errorf("first use: %v, want %s", err, membership.CheckRegistryScope)
	}
}

// manyIdentities makes the verifier of a plane whose authorizer has a mode: node-1 is the
// machine, which the inventory names in mode Inventory and an operator in mode Approval.
func manyIdentities(t *testing.T, plane *attesttest.ControlPlane, mode Mode, identity string) (*attest.Verifier, membership.Registry, error) {
	t.Helper()
	registry, err := membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID, Road: attest.RoadAK}, membership.RegistryOptions{Now: plane.Now})
	if err != nil {
		t.Fatal(err)
	}
	inventory := map[string]*csr.Machine{}
	for nodeName, identity := range map[string]string{attesttest.NodeName: identity, "node-2": "othername:2.999.1:DAdhbm90aGVy"} {
		machine := &csr.Machine{Name: nodeName, NodeName: nodeName, UID: "uid-of-" + nodeName, Identity: identity, ProviderID: attesttest.ProviderID, BootstrapReady: true}
		if mode != ModeInventory {
			machine.Identity = ""
		}
		inventory[nodeName] = machine
	}
	if mode == ModeApproval {
		record, err := registry.Reserve(t.Context(), membership.Claim{NodeName: attesttest.NodeName, Machine: attest.Identity(identity),
			MachineUID: "uid-of-" + attesttest.NodeName, ProviderID: attesttest.ProviderID}, plane.Now().Add(time.Minute))
		if err == nil {
			_, err = registry.Bind(t.Context(), record, time.Time{}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	config := plane.Config
	config.Policy = config.Policy.Clone()
	config.Policy.Machines = func(_ context.Context, q csr.Question) (*csr.Machine, error) { return inventory[q.NodeName], nil }
	if config.Authorizer, err = New(Config{Mode: mode, Now: plane.Now, Registries: []membership.FirstUseConfig{{Registry: registry, MaxLifetime: time.Hour,
		NodeExists: func(context.Context, string) (bool, error) { return false, nil }}}}); err != nil {
		t.Fatal(err)
	}
	verifier, err := attest.NewVerifier(config)
	return verifier, registry, err
}

// TestNew refuses what cannot work, each thing alone.
func TestNew(t *testing.T) {
	first := func(scope membership.Scope) membership.FirstUseConfig {
		registry := testkit.Must(membership.NewMemoryRegistry(scope, membership.RegistryOptions{}))
		return membership.FirstUseConfig{Registry: registry, MaxLifetime: time.Hour, NodeExists: NodeExists()}
	}
	byTPM, byRack := first(membership.Scope{Cluster: "cluster-1"}), first(membership.Scope{Cluster: "cluster-1", Provider: "rack", Road: attest.RoadDocument})
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
	for name, m := range map[string]*Authorizer{"nil": nil, "zero": {}} {
		if err := m.CheckAuthorizer(attest.Opening{}); !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := m.Authorize(t.Context(), new(attest.Result)); !errors.Is(err, attest.CheckMembership) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
