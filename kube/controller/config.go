package controller

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/recent"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// Providers decide requests with evidence. [Of] makes them of a verifier; your own implementation
// calls csr.Verify.
type Providers interface {
	// SignerNames returns the signers of certificates for which there is a provider.
	SignerNames() []string
	// ChallengeSigners returns the signers under which nodes file hellos.
	ChallengeSigners() []string
	// Challenge returns the challenge for a hello.
	Challenge(ctx context.Context, request *csr.Request) ([]byte, error)
	// Verify verifies an answer.
	Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error)
}

// Of returns the Providers that a verifier is, or nil for nil.
func Of(v *attest.Verifier) Providers {
	if v == nil {
		return nil
	}
	return verifier{v}
}

type verifier struct{ *attest.Verifier }

func (v verifier) Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error) {
	return csr.Verify(ctx, v.Verifier, request)
}

// Registry is the part of a membership.Registry that a [Reconciler] needs.
type Registry interface {
	membership.Lookups
	// Bind is the Bind of membership.Registry.
	Bind(ctx context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error)
}

// Config is the configuration of a [Reconciler]. The fields of the first group have no
// default: leaving one out is an error.
//
// A request with the annotation nodeattest.github.io/break-glass is not refused: the reconciler
// needs the admission policies of kube/deploy, which refuse the annotation from nodes.
type Config struct {
	// Providers decide the requests.
	Providers Providers

	// Name is the controller's name in logs, metrics and Events; empty means DefaultName. Each
	// controller of a process has its own.
	Name string
	// Cluster is where the requests are; nil means the manager's own cluster. Another one has
	// to be added to the manager too.
	Cluster cluster.Cluster
	// Serving decides kubelets' own requests for serving certificates, which carry no evidence
	// (csr.SignerKubeletServing). Its SignerNames must be that one name, and its Records nil:
	// Registry is used. Nil leaves those requests alone.
	Serving *csr.Policy
	// Registry is the registry by which Providers admit, such as *registry.Registry, or all of
	// them (registry.Several). Certificates that Kubernetes' own signer made after an approval are
	// recorded there; Serving needs these records. Nil records no certificate.
	Registry Registry
	// Stale looks up, from a cache that may be behind, where to record a certificate; nil
	// means Registry. The write is over the version that was looked up; if it fails, Registry
	// is asked.
	Stale membership.Lookups

	// Changes, if set, is called once by SetupWithManager. From then on it calls changed, which does not wait, with
	// the name of each node whose record in Registry was added, changed or deleted: if the last request of that
	// node was refused, and an operator may have admitted its machine, the reconciler changes the time of the
	// refusal, and the node files another request soon. Nil has each node wait until its pause ends, at most
	// five minutes.
	Changes func(changed func(nodeName string)) error
	// Observe is told of each approval of a node's certificate, and of each refusal that is left to
	// others, with the name of the node. It is not told of hellos. If it is not nil, requests to
	// Kubernetes' own signers that bring no evidence are not refused: they are left to others. Nil
	// refuses them.
	Observe func(request *csr.Request, nodeName string, d csr.Decision)

	// RequesterRate is how many requests of one requester are looked at per second over time,
	// and RequesterBurst how many at once; zero means 20 and 100. All who use the same
	// bootstrap token are one requester. Excess requests wait in the order of their creation,
	// and those beyond 8,192 are left for a later list.
	RequesterRate  float64
	RequesterBurst int
	// Workers is how many requests to each signer are decided at a time, of which one requester
	// has a quarter at most; zero means DefaultWorkers.
	Workers int
	// EveryReplica has every replica decide, not only the leader: if two do so at once, one
	// loses its write.
	EveryReplica bool
	// Metrics is where the counters are registered, with Name as the label controller, such as
	// controller-runtime's metrics.Registry; nil registers them nowhere.
	Metrics prometheus.Registerer
	// Events is where Events about decisions go; nil means the manager's recorder.
	Events events.EventRecorder
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Defaults of a [Config].
const (
	DefaultName           = "node-attestation-controller"
	defaultRequesterRate  = 20
	defaultRequesterBurst = 100
	DefaultWorkers        = 24 // which mostly wait for the API server
)

// New checks the configuration and returns a reconciler for [Reconciler.SetupWithManager].
// The error is refusal.CheckConfig, or that of csr.Policy.Validate.
func New(config Config) (*Reconciler, error) {
	switch {
	case config.Providers == nil:
		return nil, refusal.Config("Providers", "", "controller.Of a verifier, or others")
	case len(config.Providers.SignerNames()) == 0:
		return nil, refusal.Config("Providers", "none for any signer",
			"at least one: csr.Policy.SignerNames has the signers")
	case config.Serving != nil && config.Registry == nil:
		return nil, refusal.Config("Registry", "", "the issued certificates, for Serving")
	case config.Serving != nil && !slices.Equal(config.Serving.SignerNames, []string{csr.SignerKubeletServing}):
		return nil, refusal.Config("Serving.SignerNames", refusal.Quotes(config.Serving.SignerNames), csr.SignerKubeletServing+" alone")
	case config.Serving != nil && config.Serving.IssuedRecord != nil:
		return nil, refusal.Config("Serving.IssuedRecord", "a function", "none: Config.Registry is used")
	case config.RequesterRate < 0 || config.RequesterBurst < 0 || config.Workers < 0:
		return nil, refusal.Config("RequesterRate, RequesterBurst and Workers", "a negative one", "0 or more")
	}
	r := &Reconciler{c: config, signers: map[string]message{}}
	for _, name := range config.Providers.SignerNames() {
		r.signers[name] = messageAnswer
	}
	for _, name := range config.Providers.ChallengeSigners() {
		r.signers[name] = messageHello
	}
	if config.Serving != nil {
		if err := r.setServing(config.Serving); err != nil {
			return nil, err
		}
	}
	return r, r.complete()
}

// complete fills in the defaults.
func (r *Reconciler) complete() error {
	c := &r.c
	c.Name = cmp.Or(c.Name, DefaultName)
	c.RequesterRate = cmp.Or(c.RequesterRate, defaultRequesterRate)
	c.RequesterBurst = cmp.Or(c.RequesterBurst, defaultRequesterBurst)
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	if c.Now == nil {
		c.Now = time.Now
	}
	r.limits = &limits{rate: rate.Limit(c.RequesterRate), burst: c.RequesterBurst, requesters: recent.New[string, *rate.Limiter](limitsSize)}
	r.done, r.refused = requests.NewRecent(), newRefused()
	var err error
	r.metrics, err = newMetrics(c.Metrics, c.Name)
	return err
}

// Signers returns the signer names of the requests that the reconciler decides, sorted: for
// RBAC, since for each it needs the verb approve on the resource signers.
func (r *Reconciler) Signers() []string {
	return slices.Sorted(maps.Keys(r.signers))
}
