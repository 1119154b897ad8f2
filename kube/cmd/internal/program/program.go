// Package program is what the module's programs have in common: flags, logs, the connection to
// the API server, and a manager that leads, answers health checks and shuts down gracefully.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// Flags are a program's command line.
type Flags struct {
	// Config is the path of the configuration file.
	Config string
	// Kubeconfig is the path of a kubeconfig; empty: the service account.
	Kubeconfig string
	// LeaderElection has only one replica at a time decide.
	LeaderElection bool
	// Debug logs more.
	Debug bool
}

// Main runs a program until it is told to end or its configuration has changed, and returns
// its exit status: 0, 1 after an error, 2 after a wrong command line.
func Main(name string, args []string, stderr io.Writer, run func(ctx context.Context, f Flags, s *settings.Settings) error) int {
	var f Flags
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.Config, "config", "/etc/nodeattest/config.yaml", "the configuration `file`")
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "a kubeconfig `file`; by default the service account of the pod is used")
	set.BoolVar(&f.LeaderElection, "leader-elect", true, "have one replica at a time decide")
	set.BoolVar(&f.Debug, "debug", false, "log more")
	version := set.Bool("version", false, "print the version and end")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case set.NArg() != 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", name, set.Arg(0))
		return 2
	case *version:
		fmt.Fprintln(stderr, name, versionOf())
		return 0
	}
	level := slog.LevelInfo
	if f.Debug {
		level = slog.LevelDebug
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
	log.SetLogger(logger)
	klog.SetLogger(logger.WithName("client-go"))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := settings.Read(f.Config)
	if err == nil {
		err = following(log.IntoContext(ctx, logger), f, s, run)
	}
	if err != nil {
		logger.Error(err, "ended", "program", name)
		return 1
	}
	return 0
}

// following runs until ctx ends or the configuration has changed.
func following(ctx context.Context, f Flags, s *settings.Settings, run func(ctx context.Context, f Flags, s *settings.Settings) error) error {
	ctx, end := context.WithCancel(ctx)
	var follows sync.WaitGroup
	follows.Go(func() { s.Follow(ctx, end) })
	defer follows.Wait()
	defer end()
	return run(ctx, f, s)
}

func versionOf() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// Addresses are where a program listens; "0" means nowhere.
type Addresses struct{ Metrics, Health string }

// NewManager connects to the API server. The manager shuts down gracefully: it stops deciding,
// waits for what is under way, and gives up its lease.
func NewManager(name string, f Flags, s *settings.Settings, a Addresses) (manager.Manager, error) {
	config, err := rest.InClusterConfig()
	if f.Kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = name + "/" + versionOf()
	config.QPS, config.Burst = -1, -1 // the API server's priority and fairness limits the rate
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	stop := 20 * time.Second
	m, err := manager.New(config, manager.Options{
		Scheme: scheme, Logger: log.Log, Cache: cache.Options{DefaultTransform: registry.Lean()},
		LeaderElection: f.LeaderElection, LeaderElectionID: name, LeaderElectionNamespace: s.Cluster.Namespace, LeaderElectionReleaseOnCancel: true,
		Metrics: server.Options{BindAddress: a.Metrics}, HealthProbeBindAddress: a.Health, GracefulShutdownTimeout: &stop,
	})
	if err != nil {
		return nil, err
	}
	return m, m.AddHealthzCheck("ping", healthz.Ping)
}

// Synced reports, for a readiness check, whether the manager's caches are in sync.
func Synced(m manager.Manager) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches have not been filled")
		}
		return nil
	}
}
