package controlplane

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/members"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/kube/signer"
)

var errNoSigner = errors.New("signers.names has only Kubernetes' own signer: there is nothing to sign")

// runSigner starts everything that the configuration asks for.
func runSigner(ctx context.Context, f flags, s *settings.Settings) error {
	if f.insecure {
		return runInsecureSigner(ctx, f, s)
	}
	names := s.OwnSigners()
	if len(names) == 0 {
		return errNoSigner
	}
	ids, err := s.ClusterIDs()
	if err != nil {
		return err
	}
	ca, err := signer.OpenCA(s.Signer.CertificateFile, s.Signer.KeyFile, csr.CAConfig{
		ClusterIDs: ids, SignerNames: names, MaxLifetime: s.Signers.MaxLifetime.Duration, MaxRecoveryLifetime: s.Signers.MaxRecoveryLifetime.Duration,
	})
	if err != nil {
		return err
	}
	m, nodes, err := newManager(signer.DefaultName, f, s, s.Signer.MetricsAddress, s.Signer.HealthAddress)
	if err != nil {
		return err
	}
	ring := new(attest.KeyRing)
	keeper, err := keyring.New(keyring.Config{
		Reader: m.GetAPIReader(), ReadOnly: true, Ring: ring,
		Secret: client.ObjectKey{Namespace: s.Home(), Name: s.Cluster.KeyRingSecret}, Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	signs, machines, err := addSigner(ctx, m, nodes, f, s, ring, ca)
	if err != nil {
		return err
	}
	if err := registerCA(ca); err != nil {
		return err
	}
	return start(ctx, m, []manager.Runnable{keeper, ca},
		map[string]healthz.Checker{"key-ring": keeper.Check, "ca": ca.Check, "requests": signs.Check, "inventory": machines.check})
}

// registerCA has a metric say when the CA ends.
func registerCA(ca *signer.FileCA) error {
	return metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodeattest_ca_not_after_seconds",
		Help: "When the first certificate of the CA's chain ends, in seconds since 1970.",
	}, func() float64 { return float64(ca.NotAfter().Unix()) }))
}

// addSigner creates the reconciler that signs the requests of a cluster's nodes, and its inventory.
func addSigner(ctx context.Context, m manager.Manager, nodes cluster.Cluster, f flags, s *settings.Settings, ring *attest.KeyRing, ca *signer.FileCA) (*signer.Reconciler, *machineSource, error) {
	var all registry.Several
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		records, err := registry.New(scope, nodes.GetAPIReader(), nodes.GetClient(), registry.Options{Stale: registry.Remembered(nodes.GetAPIReader())})
		if err != nil {
			return nil, nil, err
		}
		all = append(all, records)
		return records, records.Stale(), nil
	}, members.NodeExists(nodes.GetAPIReader()))
	if err != nil {
		return nil, nil, err
	}
	machines, err := addInventory(ctx, m, s, all, clusterapi.Config{})
	if err != nil {
		return nil, nil, err
	}
	verifier, err := s.Verifier(ring, machines.find, machines.wraps(admits), s.OwnSigners()...)
	if err != nil {
		return nil, nil, err
	}
	if err := addTrust(m, s); err != nil {
		return nil, nil, err
	}
	reconciler, err := signer.New(signer.Config{
		Cluster: nodes, Events: nodes.GetEventRecorder(signer.DefaultName), Providers: controller.Of(verifier), CA: ca.CA, Workers: s.Controller.Workers, EveryReplica: !f.leaderElection, Metrics: metrics.Registry,
	})
	if err != nil {
		return nil, nil, err
	}
	return reconciler, machines, reconciler.SetupWithManager(m)
}
