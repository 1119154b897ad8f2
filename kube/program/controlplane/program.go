// Package controlplane is the programs node-attestation-controller and node-attestation-signer, for
// a main function that adds kinds of evidence to the built-in ones:
//
//	func main() { os.Exit(controlplane.Controller(os.Args[1:], os.Stderr, rack)) }
//
// The node's side of such a kind is for package node. It is also the program bootstrap-controller, which
// has no kinds.
package controlplane

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
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/kube/program/internal/version"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/kube/signer"
)

// Plugin is a kind of evidence that a program accepts in addition to the built-in ones. It opens the road
// of documents alone (package attest/document).
type Plugin struct {
	// Name is the kind's name: the Provider of its attest.Description, and the name of its
	// section of the configuration file. The kind is accepted if the section is there.
	Name string
	// Identities are the kinds of attest.Identity that it finds, such as "rack", with their
	// grammars. An inventory may have one of another kind for none of its machines.
	Identities []attest.Grammar
	// Versions are as in its attest.Description; nil means only version 1.
	Versions []int
	// Open makes the kind. decode reads the section into a pointer to a struct whose fields
	// have JSON tags: an unknown field, or a value of the wrong type, is an error. Files that
	// the section names as rootsFile, intermediatesFile or crlFiles are watched: the program
	// ends when they change, to be started again with them. Open is called at the start and
	// then to try a configuration that has changed.
	Open func(decode func(into any) error) (attest.Kind, error)
}

// flags are a program's command line.
type flags struct {
	config         string // the path of the configuration file
	kubeconfig     string // the path of a kubeconfig; empty: the service account
	leaderElection bool   // only one replica at a time decides
	observe        bool   // requests without evidence are left to others
	insecure       bool   // nodes without evidence are served, and no others
	debug          bool   // more is logged
}

// Controller is the program node-attestation-controller. It runs until it is told to end or
// its configuration has changed, and returns its exit status: 0, 1 after an error, 2 after a
// wrong command line.
func Controller(args []string, stderr io.Writer, kinds ...Plugin) int {
	return run(controller.DefaultName, args, stderr, kinds, runController)
}

// Signer is the program node-attestation-signer, in the same way.
func Signer(args []string, stderr io.Writer, kinds ...Plugin) int {
	return run(signer.DefaultName, args, stderr, kinds, runSigner)
}

func run(name string, args []string, stderr io.Writer, kinds []Plugin, serve func(ctx context.Context, f flags, s *settings.Settings) error) int {
	return runProgram(name, args, stderr, func(ctx context.Context, f flags) error {
		known := make([]settings.Documents, len(kinds))
		for i, k := range kinds {
			known[i] = settings.Documents(k)
		}
		s, err := settings.Read(f.config, known...)
		if err != nil {
			return err
		}
		return following(ctx, s.Follow, func(ctx context.Context) error { return serve(ctx, f, s) })
	})
}

// runProgram reads the command line and runs a program until it is told to end.
func runProgram(name string, args []string, stderr io.Writer, serve func(ctx context.Context, f flags) error) int {
	var f flags
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&f.config, "config", "/etc/nodeattest/config.yaml", "the configuration `file`")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "a kubeconfig `file`; by default the service account of the pod is used")
	set.BoolVar(&f.leaderElection, "leader-elect", true, "have one replica at a time decide")
	if name == controller.DefaultName {
		set.BoolVar(&f.observe, "observe", false, "leave requests without evidence to others, and be ready although there are ways around attestation")
	}
	if name == signer.DefaultName {
		set.BoolVar(&f.insecure, "insecure", false, "serve the nodes that cannot attest (evidence: none in the inventory), and no others: the first holder of a bootstrap token becomes such a node")
	}
	set.BoolVar(&f.debug, "debug", false, "log more")
	tell := set.Bool("version", false, "print the version and exit")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case set.NArg() != 0:
		fmt.Fprintf(stderr, "%s: unexpected argument %q\n", name, set.Arg(0))
		return 2
	case *tell:
		fmt.Fprintln(stderr, name, version.Of())
		return 0
	}
	level := slog.LevelInfo
	if f.debug {
		level = slog.LevelDebug
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: level}))
	log.SetLogger(logger)
	klog.SetLogger(logger.WithName("client-go"))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(log.IntoContext(ctx, logger), f); err != nil {
		logger.Error(err, "ended", "program", name)
		return 1
	}
	return 0
}

// following serves until ctx ends or the configuration, which follow watches, has changed.
func following(ctx context.Context, follow func(ctx context.Context, end func()), serve func(ctx context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	var follows sync.WaitGroup
	follows.Go(func() { follow(ctx, end) }) //goroutine: reads the configuration file
	defer follows.Wait()
	defer end()
	return serve(ctx)
}

// connection makes a connection to an API server: by a kubeconfig, or the service account if that is "".
func connection(name, kubeconfig string) (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = name + "/" + version.Of()
	config.QPS, config.Burst = -1, -1 // the API server's priority and fairness limits the rate
	return config, nil
}

// lease is the name of the Lease of a program's replicas. On a management cluster each Cluster has its
// own.
func lease(name string, s *settings.Settings) string {
	if from := s.Inventory.ClusterAPI; from != nil {
		return name + "-" + from.Cluster
	}
	return name
}

// newManager connects to the API servers. The manager listens at two addresses, of which "0"
// means nowhere. It shuts down gracefully: it stops deciding, waits for pending decisions, and
// gives up its lease. The cluster of the nodes is its own, unless Machines of Cluster API are the
// inventory: then the manager is on the management cluster, with lease and challenge keys.
func newManager(name string, f flags, s *settings.Settings, metricsAddress, healthAddress string) (manager.Manager, cluster.Cluster, error) {
	config, err := connection(name, f.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	home := config
	if from := s.Inventory.ClusterAPI; from != nil {
		if home, err = connection(name, from.Kubeconfig); err != nil {
			return nil, nil, err
		}
	}
	scheme := runtime.NewScheme()
	if err := (&runtime.SchemeBuilder{clientscheme.AddToScheme, v1alpha1.AddToScheme}).AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	caches := cache.Options{DefaultTransform: registry.Lean()}
	p, err := newServed(home, manager.Options{
		Scheme: scheme, Cache: caches, LeaderElection: f.leaderElection, LeaderElectionID: lease(name, s), LeaderElectionNamespace: s.Home(),
		Metrics: server.Options{BindAddress: nowhere},
	}, metricsAddress, healthAddress)
	if err != nil {
		return nil, nil, err
	}
	if s.Inventory.ClusterAPI == nil {
		return p, p, nil
	}
	nodes, err := cluster.New(config, func(o *cluster.Options) { o.Scheme, o.Cache, o.Logger = scheme, caches, log.Log })
	if err != nil {
		return nil, nil, err
	}
	return p, nodes, p.Add(nodes)
}

// newServed makes a manager that listens at two addresses, and shuts down gracefully.
func newServed(config *rest.Config, opts manager.Options, metricsAddress, healthAddress string) (*probed, error) {
	stop := 20 * time.Second
	opts.Logger, opts.LeaderElectionReleaseOnCancel, opts.GracefulShutdownTimeout = log.Log, true, &stop
	opts.HealthProbeBindAddress, opts.PprofBindAddress = nowhere, nowhere
	m, err := manager.New(config, opts)
	if err != nil {
		return nil, err
	}
	p := newProbed(m)
	return p, errors.Join(p.addServers(metricsAddress, healthAddress), p.AddHealthzCheck("ping", healthz.Ping), metrics.Registry.Register(newReadiness(p)))
}

// synced reports, for a readiness check, whether a cluster's caches are in sync.
func synced(m cluster.Cluster) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !m.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches have not been filled")
		}
		return nil
	}
}
