package controlplane

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
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
	machines, err := s.OpenInventory()
	if err != nil {
		return err
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
	m, err := newManager(signer.DefaultName, f, s, s.Signer.MetricsAddress, s.Signer.HealthAddress)
	if err != nil {
		return err
	}
	ring := new(attest.KeyRing)
	keeper, err := keyring.New(keyring.Config{
		Reader: m.GetAPIReader(), ReadOnly: true, Ring: ring,
		Secret: client.ObjectKey{Namespace: s.Cluster.Namespace, Name: s.Cluster.KeyRingSecret}, Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	signs, err := addSigner(m, f, s, ring, machines, ca, names)
	if err != nil {
		return err
	}
	if err := registerCA(ca); err != nil {
		return err
	}
	return start(ctx, m, []manager.Runnable{machines, keeper, ca},
		map[string]healthz.Checker{"key-ring": keeper.Check, "ca": ca.Check, "requests": signs.Check})
}

// registerCA has a metric say when the CA ends.
func registerCA(ca *signer.FileCA) error {
	return metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "nodeattest_ca_not_after_seconds",
		Help: "When the first certificate of the CA's chain ends, in seconds since 1970.",
	}, func() float64 { return float64(ca.NotAfter().Unix()) }))
}

// addSigner creates the reconciler that signs requests.
func addSigner(m manager.Manager, f flags, s *settings.Settings, ring *attest.KeyRing, machines *settings.Machines, ca *signer.FileCA, names []string) (*signer.Reconciler, error) {
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		records, err := registry.New(scope, m.GetAPIReader(), m.GetClient(), registry.Options{Stale: registry.Remembered(m.GetAPIReader())})
		if err != nil {
			return nil, nil, err
		}
		return records, records.Stale(), nil
	}, members.NodeExists(m.GetAPIReader()))
	if err != nil {
		return nil, err
	}
	verifier, err := s.Verifier(ring, machines, admits, names...)
	if err != nil {
		return nil, err
	}
	if err := addTrust(m, s); err != nil {
		return nil, err
	}
	reconciler, err := signer.New(signer.Config{
		Providers: controller.Of(verifier), CA: ca.CA, Workers: s.Controller.Workers, EveryReplica: !f.leaderElection, Metrics: metrics.Registry,
	})
	if err != nil {
		return nil, err
	}
	return reconciler, reconciler.SetupWithManager(m)
}
