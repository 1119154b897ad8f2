package controlplane

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
)

// machineSource finds the machine that is to be a node: in a file, or among the Machines of Cluster API.
type machineSource struct {
	find  settings.FindMachine
	wraps func(attest.Authorizer) attest.Authorizer // adds what the inventory asks of a machine
	check healthz.Checker
	// withoutEvidence returns the nodes of a file that cannot attest. A Machine of Cluster API has no
	// node's name before it joins.
	withoutEvidence func() []string
}

// servedSigners are the signers of certificates that the programs of a configuration serve.
func servedSigners(s *settings.Settings) []string {
	names := slices.Clone(s.Signers.Names)
	if s.Signers.BuiltInDuration.Duration != 0 {
		names = append(names, csr.SignerKubeletServing)
	}
	if s.InsecureSigner != nil {
		names = append(names, csr.SignerClientInsecure)
	}
	return names
}

// poolSlots are the slots of Cluster API's MachinePools, or nil. Where a node-attestation-signer verifies each
// answer again, it would have to count them too, and its account may not list AttestedNodes.
func poolSlots(s *settings.Settings, nodes client.Reader) *clusterapi.Slots {
	if s.Inventory.ClusterAPI == nil || len(s.OwnSigners()) != 0 {
		return nil
	}
	return &clusterapi.Slots{Nodes: nodes, Metrics: metrics.Registry}
}

// addInventory opens the inventory of the configuration, and has the manager keep it up to date. The
// signers are those that infrastructure providers are to state. follow, if it is not nil, has records follow
// Machines; slots, if it is not nil, admits machines of MachinePools.
func addInventory(ctx context.Context, m manager.Manager, s *settings.Settings, records membership.Lookups, follow *clusterapi.Follow, slots *clusterapi.Slots, signers ...string) (*machineSource, error) {
	from := s.Inventory.ClusterAPI
	if from == nil {
		machines, err := s.OpenInventory()
		if err != nil {
			return nil, err
		}
		same := func(a attest.Authorizer) attest.Authorizer { return a }
		return &machineSource{machines.Machine, same, healthz.Ping, machines.WithoutEvidence}, m.Add(machines)
	}
	machines, err := clusterapi.New(ctx, clusterapi.Config{Management: m.GetConfig(), Namespace: from.Namespace, Cluster: from.Cluster, Records: records, Signers: signers, Follow: follow, Slots: slots})
	if err != nil {
		return nil, err
	}
	return &machineSource{machines.Machine, machines.Authorizer, machines.Check, func() []string { return nil }}, machines.SetupWithManager(m)
}
