package controlplane

import (
	"context"
	"io"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodeattest/nodeattest/kube/internal/bootstrap"
)

const bootstrapName = "bootstrap-controller"

// Bootstrap is the program bootstrap-controller, which signs and publishes ConfigMap cluster-info, or
// deletes the Secrets of expired bootstrap tokens, as its configuration says. It runs until it is told
// to end or its configuration has changed, and returns its exit status as [Controller] does.
func Bootstrap(args []string, stderr io.Writer) int {
	return runProgram(bootstrapName, args, stderr, func(ctx context.Context, f flags) error {
		s, err := bootstrap.Read(f.config)
		if err != nil {
			return err
		}
		return following(ctx, s.Follow, func(ctx context.Context) error { return runBootstrap(ctx, f, s) })
	})
}

// runBootstrap runs the controllers that the configuration names.
func runBootstrap(ctx context.Context, f flags, s *bootstrap.Settings) error {
	config, err := connection(bootstrapName, f.kubeconfig)
	if err != nil {
		return err
	}
	m, err := newServed(config, manager.Options{
		Scheme: scheme.Scheme, Cache: bootstrap.CacheOptions(), LeaderElection: f.leaderElection, LeaderElectionID: s.Account(), LeaderElectionNamespace: s.Namespace,
		Metrics: server.Options{BindAddress: nowhere},
	}, s.MetricsAddress, s.HealthAddress)
	if err != nil {
		return err
	}
	if err := bootstrap.Add(m, s); err != nil {
		return err
	}
	return start(ctx, m, nil, map[string]healthz.Checker{"caches": synced(m)})
}
