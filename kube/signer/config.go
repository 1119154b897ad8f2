package signer

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/controller"
	"github.com/nodeattest/nodeattest/refusal"
)

// Authority issues certificates. One implementation is *csr.CA, over any crypto.Signer;
// another is [FileCA].
type Authority interface {
	// Issue is the Issue of csr.CA.
	Issue(ctx context.Context, attested *csr.Attested) (*csr.Issued, error)
}

// Config is the configuration of a [Reconciler]. The fields of the first group have no
// default: leaving one out is an error.
type Config struct {
	// Providers verify the evidence. Requests to all of their SignerNames are signed, and none
	// of these may be Kubernetes' own. They must be among the
	// OwnSignersElsewhere of the membership.FirstUse that admits, here and in the controller, so that each certificate is recorded before anybody
	// sees it.
	Providers controller.Providers
	// CA issues the certificates, for the same signers.
	CA Authority

	// Workers is how many requests are signed at a time; zero means
	// controller.DefaultWorkers.
	Workers int
	// EveryReplica has every replica sign, not only the leader.
	EveryReplica bool
	// Metrics is where the counters are registered; nil registers them nowhere.
	Metrics prometheus.Registerer
	// Events is where Events about failures go; nil means the manager's recorder.
	Events events.EventRecorder
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// New checks the configuration. The error is refusal.CheckConfig.
func New(c Config) (*Reconciler, error) {
	switch {
	case c.Providers == nil:
		return nil, refusal.Config("Providers", "", "csr.Providers")
	case len(c.Providers.SignerNames()) == 0:
		return nil, refusal.Config("Providers", "none for any signer", "one at least")
	case slices.ContainsFunc(c.Providers.SignerNames(), func(name string) bool { return csr.ProviderOf(name) == "" }):
		return nil, refusal.Config("Providers", "one for "+refusal.Quotes(c.Providers.SignerNames()), "none for Kubernetes' own signers")
	case c.CA == nil:
		return nil, refusal.Config("CA", "", "csr.CA or FileCA")
	case c.Workers < 0:
		return nil, refusal.Config("Workers", "a negative one", "0 or more")
	}
	if c.Workers == 0 {
		c.Workers = controller.DefaultWorkers
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	metrics, err := newMetrics(c.Metrics)
	if err != nil {
		return nil, err
	}
	return newReconciler(c, metrics), nil
}
