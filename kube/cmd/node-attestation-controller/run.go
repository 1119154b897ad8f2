package main

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/bypass"
	"github.com/nodeattest/nodeattest/kube/cmd/internal/program"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/keyring"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// run starts everything that the configuration asks for.
func run(ctx context.Context, f program.Flags, s *settings.Settings) error {
	machines, err := s.OpenInventory()
	if err != nil {
		return err
	}
	m, err := program.NewManager(controller.DefaultName, f, s, program.Addresses{Metrics: s.Controller.MetricsAddress, Health: s.Controller.HealthAddress})
	if err != nil {
		return err
	}
	ring := new(attest.KeyRing)
	keeper, err := keyring.New(keyring.Config{
		Reader: m.GetAPIReader(), Writer: m.GetClient(), Ring: ring, RotateAfter: s.Controller.RotateKeysAfter.Duration,
		Secret: client.ObjectKey{Namespace: s.Cluster.Namespace, Name: s.Cluster.KeyRingSecret},
	})
	if err != nil {
		return err
	}
	if err := addReconciler(ctx, m, f, s, ring, machines); err != nil {
		return err
	}
	watch, err := newWatch(m, s)
	if err != nil {
		return err
	}
	for _, r := range []manager.Runnable{machines, keeper, watch} {
		if err := m.Add(r); err != nil {
			return err
		}
	}
	for name, check := range map[string]healthz.Checker{"key-ring": keeper.Check, "ways-around": watch.Check, "caches": program.Synced(m)} {
		if err := m.AddReadyzCheck(name, check); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// addReconciler creates what decides requests.
func addReconciler(ctx context.Context, m manager.Manager, f program.Flags, s *settings.Settings, ring *attest.KeyRing, machines *settings.Machines) error {
	nodes, err := registry.Cached(ctx, m.GetCache())
	if err != nil {
		return fmt.Errorf("the registry's cache: %w", err)
	}
	if err := program.CacheNodes(ctx, m); err != nil {
		return fmt.Errorf("the cache of Nodes: %w", err)
	}
	var records, cached registry.Several
	members, err := s.NewMembers(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		live, err := registry.New(scope, m.GetAPIReader(), m.GetClient(), registry.Options{Stale: nodes})
		if err != nil {
			return nil, nil, err
		}
		records, cached = append(records, live), append(cached, live.Stale())
		return live, live.Stale(), nil
	}, program.NodeExists(m.GetCache(), m.GetAPIReader()))
	if err != nil {
		return err
	}
	evidence, err := s.Evidence(ring, machines, members)
	if err != nil {
		return err
	}
	c := controller.Config{
		Providers: evidence.Providers, Records: records, Stale: cached, EveryReplica: !f.LeaderElection,
		RequesterRate: s.Controller.RequesterRate, RequesterBurst: s.Controller.RequesterBurst, Workers: s.Controller.Workers, Metrics: metrics.Registry,
	}
	if s.Signers.BuiltInDuration.Duration != 0 {
		c.Serving = s.Policy(machines, csr.SignerKubeletServing)
	}
	reconciler, err := controller.New(c)
	if err != nil {
		return err
	}
	return reconciler.SetupWithManager(m)
}

// newWatch creates what looks for ways around attestation. Even if Kubernetes' own signer is
// not used, its approvers matter: the API server trusts its CA.
func newWatch(m manager.Manager, s *settings.Settings) (*bypass.Watch, error) {
	finder, err := bypass.NewFinder(bypass.Config{
		Reader: m.GetAPIReader(), Writer: m.GetClient(),
		Approvers: []string{controller.DefaultName}, Accepted: slices.Clone(s.Controller.AcceptedBindings),
	})
	if err != nil {
		return nil, fmt.Errorf("ways around: %w", err)
	}
	return bypass.NewWatch(bypass.WatchConfig{
		Finder: finder, Events: m.GetEventRecorder(controller.DefaultName), Metrics: metrics.Registry, InsecureAllow: s.Controller.InsecureAllowWaysAround,
	})
}
