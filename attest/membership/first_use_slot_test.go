package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm/tpmcert"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestFirstUseSlot: a machine of a pool has the UID that Slot names, in its record and its
// certificate's, and comes again with it. Two names have not one slot, and another authorizer's word
// is not enough.
func TestFirstUseSlot(t *testing.T) {
	profile := tpmcert.ProfileTCG()
	profile.OneAKPerMachine = true
	node := attesttest.NewNode(t, attesttest.NodeOptions{Profile: profile})
	plane := attesttest.NewControlPlane(t, node)
	plane.Config.Policy.Machines = func(context.Context, csr.Question) (*csr.Machine, error) {
		return &csr.Machine{Name: "pool", NodeName: node.Name, ProviderID: node.ProviderID, BootstrapReady: true}, nil
	}
	join := func(slot string, slotErr error, around func(attest.Authorizer) attest.Authorizer) (*membership.Record, *csr.Issued, error) {
		registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID}, membership.RegistryOptions{Now: plane.Now}))
		config := membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: plane.Now, OwnCA: plane.CA,
			NodeExists: func(context.Context, string) (bool, error) { return false, nil }}
		if slot != "" || slotErr != nil {
			config.Slot = func(context.Context, *attest.Result) (string, error) { return slot, slotErr }
		}
		first := testkit.Must(membership.NewFirstUse(config))
		c := plane.Config
		c.Authorizer = around(first)
		plane.Verifier = testkit.Must(attest.NewVerifier(c))
		var issued *csr.Issued
		for range 2 { // the second time it is known
			challenge, err := plane.Challenge(t.Context(), node)
			if err != nil {
				return nil, nil, err
			}
			answer := testkit.Must(node.Answer(t.Context(), challenge, plane.Now()))
			result, err := plane.Verifier.Verify(t.Context(), answer)
			if err != nil {
				return nil, nil, err
			}
			if issued, err = plane.CA.Issue(t.Context(), result.Attested()); err != nil {
				return nil, nil, err
			}
		}
		record, err := registry.Lookup(t.Context(), node.Name)
		return record, issued, err
	}
	alone := func(a attest.Authorizer) attest.Authorizer { return a }
	named := func(a attest.Authorizer) attest.Authorizer {
		return membership.Both(attest.AuthorizerFunc(func(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
			given := r.Admit(attest.KnownNode(node.Name))
			given.ProviderID, given.MachineUID = node.ProviderID, "slot-1"
			return given, nil
		}), a)
	}
	for name, around := range map[string]func(attest.Authorizer) attest.Authorizer{"alone": alone, "named by both": named} {
		record, issued, err := join("slot-1", nil, around)
		if err != nil || record == nil || record.MachineUID != "slot-1" || issued.Record.MachineUID != "slot-1" {
			t.Errorf("%s: got record %+v, %v", name, record, err)
		}
	}
	for name, c := range map[string]struct {
		slot   string
		err    error
		around func(attest.Authorizer) attest.Authorizer
	}{
		"no such slot":         {"", attest.NotMember("no slot is free"), alone},
		"another slot":         {"slot-2", nil, named},
		"named by one of both": {"", nil, named},
	} {
		if record, _, err := join(c.slot, c.err, c.around); !errors.Is(err, attest.CheckMembership) {
			t.Errorf("%s: got %+v, %v", name, record, err)
		}
	}
}
