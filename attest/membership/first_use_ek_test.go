package membership_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/attesttest"
	"github.com/nodeattest/nodeattest/attest/membership"
	tpmkind "github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// Trust on first use on the EK's road: one machine has one name and one EK, and a
// name has one machine.
func TestFirstUseOfEKs(t *testing.T) {
	ctx := context.Background()
	ca := testkit.Must(tpmsim.NewCA(tpmsim.CAOptions{}))
	ours := tpmsim.New(t, tpmsim.Options{CA: ca})
	theirs := tpmsim.Swtpm(t, tpmsim.Options{CA: ca})
	node := func(device *tpmsim.TPM, name string, ek tpmkind.EKOrigin) *attesttest.Node {
		return attesttest.NewNode(t, attesttest.NodeOptions{TPM: device, Name: name, Road: attest.RoadEK, EK: ek,
			AK: tpmkind.AKSource{Template: tpmkind.AKTemplateECDSAP256()}})
	}
	first := node(ours, "node-1", tpmkind.EKRSA2048())
	plane := attesttest.NewControlPlane(t, first, node(ours, "node-2", tpmkind.EKRSA2048()), node(ours, "node-3", tpmkind.EKP256()))
	registry := testkit.Must(membership.NewMemoryRegistry(membership.Scope{Cluster: attesttest.ClusterID, Road: attest.RoadEK, IdentityClass: "RSA-2048"}, membership.RegistryOptions{Now: plane.Now}))
	existing := map[string]bool{"node-4": true}
	use := testkit.Must(membership.NewFirstUse(membership.FirstUseConfig{Registry: registry, MaxLifetime: 24 * time.Hour, Now: plane.Now,
		NodeExists: func(_ context.Context, name string) (bool, error) { return existing[name], nil }}))
	config := plane.Config
	config.Authorizer = use
	plane.Verifier = testkit.Must(attest.NewVerifier(config))
	testkit.NoError(t, plane.Admit(node(ours, "node-4", tpmkind.EKRSA2048())))

	join := func(n *attesttest.Node) error {
		n.ProviderID = ""
		n.Subject.Request = testkit.Must(csr.Create(n.Purpose, n.Key, n.Name, csr.CreateOptions{}))
		_, err := plane.Join(ctx, n)
		return err
	}
	if err := join(node(ours, "node-4", tpmkind.EKRSA2048())); !errors.Is(err, attest.Check("registry-node-without-record")) {
		t.Errorf("a name with a Node and no record: %v", err)
	}
	if err := join(first); err != nil {
		t.Fatalf("the first machine: %v", err)
	}
	if err := join(first); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for name, c := range map[string]struct {
		node *attesttest.Node
		want error
	}{
		"a second name for the machine":        {node(ours, "node-2", tpmkind.EKRSA2048()), attest.Check("registry-machine")},
		"a second machine for the name":        {node(theirs, "node-1", tpmkind.EKRSA2048()), attest.Check("registry-name")},
		"the machine's EK of another kind":     {node(ours, "node-3", tpmkind.EKP256()), membership.CheckRegistryScope},
		"another machine's EK of another kind": {node(theirs, "node-1", tpmkind.EKP256()), membership.CheckRegistryScope},
	} {
		t.Run(name, func(t *testing.T) {
			err := join(c.node)
			if !errors.Is(err, c.want) || !errors.Is(err, attest.CheckMembership) || csr.Decide(err).Verdict != csr.VerdictDeny {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		})
	}
}
