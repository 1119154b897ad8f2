package controlplane

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
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

// readPools reads which MachinePools of Cluster API are shut, on the cluster of the nodes, and renews the tokens
// of pools if the configuration says so.
func readPools(s *settings.Settings, nodes cluster.Cluster) *clusterapi.Pools {
	pools := &clusterapi.Pools{Reader: nodes.GetAPIReader(), Namespace: s.Cluster.Namespace, Writer: nodes.GetClient(), Metrics: metrics.Registry}
	if from := s.Inventory.ClusterAPI; from != nil {
		pools.Renew, pools.TTL = from.RenewPoolTokens, from.BootstrapTokenTTL.Duration
	}
	return pools
}

// addInventory opens the inventory of the configuration, and has the manager keep it up to date. of is what an
// inventory of Cluster API does in addition to finding Machines.
func addInventory(ctx context.Context, m manager.Manager, s *settings.Settings, records membership.Lookups, of clusterapi.Config) (*machineSource, error) {
	from := s.Inventory.ClusterAPI
	if from == nil {
		machines, err := s.OpenInventory()
		if err != nil {
			return nil, err
		}
		same := func(a attest.Authorizer) attest.Authorizer { return a }
		return &machineSource{machines.Machine, same, healthz.Ping, machines.WithoutEvidence}, errors.Join(machines.Register(metrics.Registry), m.Add(machines))
	}
	of.Management, of.Namespace, of.Cluster, of.Records = m.GetConfig(), from.Namespace, from.Cluster, records
	machines, err := clusterapi.New(ctx, of)
	if err != nil {
		return nil, err
	}
	return &machineSource{machines.Machine, machines.Authorizer, machines.Check, func() []string { return nil }}, machines.SetupWithManager(m)
}
