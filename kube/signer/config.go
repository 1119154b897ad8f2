package signer

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/refusal"
)

// Config is the configuration of a [Reconciler]. The fields of the first group have no
// default: leaving one out is an error.
type Config struct {
	// Providers verify the evidence. Requests to all of their SignerNames are signed, and none
	// of these may be Kubernetes' own. They must be among the OwnSignersElsewhere of the
	// membership.FirstUse that admits, here and in the controller, so that each certificate is
	// recorded before it is published.
	Providers controller.Providers
	// CA returns the CA that issues the certificates now, for the same signers: [FileCA.CA], or
	// a function that always returns one CA.
	CA func() *csr.CA

	// Name is the signer's name in logs, metrics and Events; empty means DefaultName. Each
	// controller of a process has its own.
	Name string
	// Cluster is where the requests are; nil means the manager's own cluster. Another one has
	// to be added to the manager too.
	Cluster cluster.Cluster
	// Workers is how many requests to each signer are signed at a time, of which one requester
	// has a quarter at most; zero means controller.DefaultWorkers.
	Workers int
	// EveryReplica has every replica sign, not only the leader.
	EveryReplica bool
	// Metrics is where the counters are registered, with Name as the label controller; nil
	// registers them nowhere.
	Metrics prometheus.Registerer
	// Events is where Events about failures go; nil means the manager's recorder.
	Events events.EventRecorder
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// New checks the configuration. The error is refusal.CheckConfig.
func New(config Config) (*Reconciler, error) {
	switch {
	case config.Providers == nil:
		return nil, refusal.Config("Providers", "", "controller.Of a verifier, or others")
	case len(config.Providers.SignerNames()) == 0:
		return nil, refusal.Config("Providers", "none for any signer",
			"at least one: csr.Policy.SignerNames has the signers")
	case slices.ContainsFunc(config.Providers.SignerNames(), func(name string) bool { return csr.ProviderOf(name) == "" }):
		return nil, refusal.Config("Providers", "one for "+refusal.Quotes(config.Providers.SignerNames()), "none for Kubernetes' own signers")
	case config.CA == nil:
		return nil, refusal.Config("CA", "", "FileCA.CA, or a function that returns a csr.CA")
	case config.Workers < 0:
		return nil, refusal.Config("Workers", "a negative one", "0 or more")
	}
	config.Name = cmp.Or(config.Name, DefaultName)
	config.Workers = cmp.Or(config.Workers, controller.DefaultWorkers)
	if config.Now == nil {
		config.Now = time.Now
	}
	metrics, err := newMetrics(config.Metrics, config.Name)
	if err != nil {
		return nil, err
	}
	return newReconciler(config, metrics), nil
}
