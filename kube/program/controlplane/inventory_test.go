package controlplane

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/deploy"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/kube/signer"
)

// TestLeases: the programs of each Cluster of a management cluster have leases of their own, under the
// names that kube/deploy/clusterapi gives rights to, in
// the Cluster's namespace.
func TestLeases(t *testing.T) {
	file, machines := new(settings.Settings), new(settings.Settings)
	file.Cluster.Namespace = "keys"
	machines.Inventory.ClusterAPI = &settings.ClusterAPI{Namespace: "example", Cluster: "example-1"}
	for name, want := range map[string]string{
		controller.DefaultName: "node-attestation-controller-example-1",
		signer.DefaultName:     "node-attestation-signer-example-1",
		insecure.Signer:        "node-attestation-insecure-signer-example-1",
	} {
		if got := lease(name, machines); got != want {
			t.Errorf("by Machines: %s, want %s", got, want)
		}
		if got := lease(name, file); got != name {
			t.Errorf("by a file: %s, want %s", got, name)
		}
	}
	machines.Inventory.ClusterAPI.Cluster = "${CLUSTER_NAME}"
	for folder, name := range map[string]string{"clusterapi": controller.DefaultName, "clusterapi-signer": signer.DefaultName} {
		rights := string(bytes.Join(testkit.Must(deploy.Manifests(folder+"/rbac.yaml")), nil))
		for _, want := range []string{lease(name, machines), machines.Inventory.ClusterAPI.Cluster + "-challenge-keys"} {
			if !strings.Contains(rights, "    resourceNames: [\""+want+"\"]\n") {
				t.Errorf("%s gives no right to %s", folder, want)
			}
		}
	}
	if got := machines.Home(); got != "example" {
		t.Errorf("by Machines, they are in %s", got)
	}
	if got := file.Home(); got != "keys" {
		t.Errorf("by a file, they are in %s", got)
	}
}

// TestPoolSlots: machines of MachinePools are admitted where the inventory is Cluster API and the signers are
// Kubernetes' own.
func TestPoolSlots(t *testing.T) {
	own := csr.SignerKubeAPIServerClientKubelet
	for name, row := range map[string]struct {
		from    *settings.ClusterAPI
		signers []string
		slots   bool
	}{
		"Machines":                  {&settings.ClusterAPI{Namespace: "example", Cluster: "example-1"}, []string{own}, true},
		"a file":                    {nil, []string{own}, false},
		"Machines, a CA of its own": {&settings.ClusterAPI{Namespace: "example", Cluster: "example-1"}, []string{own, csr.SignerClientTPM}, false},
	} {
		s := new(settings.Settings)
		s.Inventory.ClusterAPI, s.Signers.Names = row.from, row.signers
		if got := poolSlots(s, nil) != nil; got != row.slots {
			t.Errorf("%s: got slots %t", name, got)
		}
	}
}
