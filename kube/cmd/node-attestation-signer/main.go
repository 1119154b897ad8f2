// Command node-attestation-signer signs approved certificate requests of nodes with its own
// CA, after verifying the evidence again. It is for the signers that the configuration names
// and that are not Kubernetes' own.
//
// Its configuration file is that of the node-attestation-controller, described in
// kube/deploy/config.yaml. It exits with status 0 when told to (SIGTERM, SIGINT), and when the
// configuration has changed, so that it is restarted with the new one; with 1 after an error,
// such as a lost lease; and with 2 after a wrong command line.
package main

import (
	"context"
	"errors"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/cmd/internal/program"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/kube/signer"
)

func main() {
	os.Exit(program.Main(signer.DefaultName, os.Args[1:], os.Stderr, run))
}

var errNoSigner = errors.New("signers.names has none but Kubernetes' own: there is nothing to sign")

// run starts everything that the configuration asks for.
func run(ctx context.Context, f program.Flags, s *settings.Settings) error {
	names := s.OwnSigners()
	if len(names) == 0 {
		return errNoSigner
	}
	machines, err := s.OpenInventory()
	if err != nil {
		return err
	}
	ca, err := signer.OpenCA(s.Signer.CertificateFile, s.Signer.KeyFile, csr.CAConfig{
		SignerNames: names, MaxLifetime: s.Signers.MaxLifetime.Duration, MaxRecoveryLifetime: s.Signers.MaxRecoveryLifetime.Duration,
	})
	if err != nil {
		return err
	}
	m, err := program.NewManager(signer.DefaultName, f, s, program.Addresses{Metrics: s.Signer.MetricsAddress, Health: s.Signer.HealthAddress})
	if err != nil {
		return err
	}
	ring := new(attest.KeyRing)
	keeper, err := keyring.New(keyring.Config{
		Reader: m.GetAPIReader(), ReadOnly: true, Ring: ring,
		Secret: client.ObjectKey{Namespace: s.Cluster.Namespace, Name: s.Cluster.KeyRingSecret},
	})
	if err != nil {
		return err
	}
	if err := addReconciler(m, f, s, ring, machines, ca, names); err != nil {
		return err
	}
	for _, r := range []manager.Runnable{machines, keeper, ca} {
		if err := m.Add(r); err != nil {
			return err
		}
	}
	if err := m.AddReadyzCheck("key-ring", keeper.Check); err != nil {
		return err
	}
	return m.Start(ctx)
}

// addReconciler creates what signs requests.
func addReconciler(m manager.Manager, f program.Flags, s *settings.Settings, ring *attest.KeyRing, machines *settings.Machines, ca *signer.FileCA, names []string) error {
	members, err := s.NewMembers(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		records, err := registry.New(scope, m.GetAPIReader(), m.GetClient(), registry.Options{Stale: registry.Remembered(m.GetAPIReader())})
		if err != nil {
			return nil, nil, err
		}
		return records, records.Stale(), nil
	}, program.NodeExists(m.GetAPIReader()))
	if err != nil {
		return err
	}
	evidence, err := s.Evidence(ring, machines, members, names...)
	if err != nil {
		return err
	}
	reconciler, err := signer.New(signer.Config{
		Providers: evidence.Providers, CA: ca.CA, Workers: s.Controller.Workers, EveryReplica: !f.LeaderElection, Metrics: metrics.Registry,
	})
	if err != nil {
		return err
	}
	return reconciler.SetupWithManager(m)
}
