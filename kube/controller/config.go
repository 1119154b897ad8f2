package controller

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/events"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/typednil"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// Providers decide requests with evidence. *csr.Providers is one implementation.
type Providers interface {
	// SignerNames returns the signers of certificates for which there is a provider.
	SignerNames() []string
	// Challenge returns the challenge for a hello.
	Challenge(ctx context.Context, request *csr.Request) ([]byte, error)
	// Verify verifies an answer.
	Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error)
}

// Registry is the part of a membership.Registry that a [Reconciler] needs.
type Registry interface {
	membership.Lookups
	// Bind is the Bind of membership.Registry.
	Bind(ctx context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error)
}

// Lookup is the part of a membership.Registry that finds the record of a node.
type Lookup interface {
	// Lookup is the Lookup of membership.Registry.
	Lookup(ctx context.Context, nodeName string) (*membership.Record, error)
}

// Config is the configuration of a [Reconciler]. The fields of the first group have no
// default: leaving one out is an error.
type Config struct {
	// Providers decide the requests.
	Providers Providers
	// Challenges are the names of the providers whose nodes file hellos, such as "tpm", under
	// csr.SignerChallenge of each.
	Challenges []string

	// Serving decides kubelets' own requests for serving certificates, which carry no evidence
	// (csr.SignerKubeletServing). Its SignerNames must be that one name, and its Records nil:
	// Registry's are used. Nil leaves those requests alone.
	Serving *csr.Policy
	// Registry is the registry by which Providers admit, such as *registry.Registry, or all of
	// them (registry.Several). It remembers what Kubernetes' own signer has signed after an
	// approval; Serving needs that. Nil remembers nothing.
	Registry Registry
	// Stale looks up, from a cache that may be behind, where to record a certificate; nil
	// means Registry. The write is over the version that was looked up; if it fails, Registry
	// is asked.
	Stale Lookup

	// RequesterRate is how many requests of one requester are looked at per second over time,
	// and RequesterBurst how many at once; zero means DefaultRequesterRate and
	// DefaultRequesterBurst. All who use the same bootstrap token are one requester. Excess
	// requests wait.
	RequesterRate  float64
	RequesterBurst int
	// Workers is how many requests are decided at a time; zero means DefaultWorkers.
	Workers int
	// EveryReplica has every replica decide, not only the leader: if two do so at once, one
	// loses its write.
	EveryReplica bool
	// Metrics is where the counters are registered, such as controller-runtime's
	// metrics.Registry; nil registers them nowhere.
	Metrics prometheus.Registerer
	// Events is where Events about decisions go; nil means the manager's recorder.
	Events events.EventRecorder
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Defaults of a [Config].
const (
	DefaultRequesterRate  = 20
	DefaultRequesterBurst = 100
	DefaultWorkers        = 24 // which mostly wait for the API server
)

// New checks the configuration and returns a reconciler for [Reconciler.SetupWithManager].
// The error is refusal.CheckConfig, or that of csr.Policy.Validate.
func New(c Config) (*Reconciler, error) {
	switch {
	case c.Providers == nil:
		return nil, refusal.Config("Providers", "", "csr.Providers")
	case len(c.Providers.SignerNames()) == 0:
		return nil, refusal.Config("Providers", "none for any signer", "one at least")
	case c.Serving != nil && c.Registry == nil:
		return nil, refusal.Config("Registry", "", "the issued certificates, for Serving")
	case c.Serving != nil && !slices.Equal(c.Serving.SignerNames, []string{csr.SignerKubeletServing}):
		return nil, refusal.Config("Serving.SignerNames", refusal.Quotes(c.Serving.SignerNames), csr.SignerKubeletServing+" alone")
	case c.Serving != nil && c.Serving.Records != nil:
		return nil, refusal.Config("Serving.Records", "a function", "Registry")
	case c.Registry != nil && typednil.Is(c.Registry), c.Stale != nil && typednil.Is(c.Stale):
		return nil, refusal.Config("Registry or Stale", "that is a nil pointer", "one, or nil")
	case c.RequesterRate < 0 || c.RequesterBurst < 0 || c.Workers < 0:
		return nil, refusal.Config("RequesterRate, RequesterBurst and Workers", "a negative one", "0 or more")
	}
	r := &Reconciler{c: c, signers: map[string]message{}}
	for _, name := range c.Providers.SignerNames() {
		r.signers[name] = messageAnswer
	}
	for _, provider := range c.Challenges {
		name, err := csr.SignerChallenge(provider)
		if err != nil {
			return nil, refusal.Config("Challenges", refusal.Quote(provider), "names of providers that challenge")
		}
		r.signers[name] = messageHello
	}
	if c.Serving != nil {
		if err := r.setServing(c.Serving); err != nil {
			return nil, err
		}
	}
	return r, r.complete()
}

// complete fills in the defaults.
func (r *Reconciler) complete() error {
	c := &r.c
	if c.RequesterRate == 0 {
		c.RequesterRate = DefaultRequesterRate
	}
	if c.RequesterBurst == 0 {
		c.RequesterBurst = DefaultRequesterBurst
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	r.limits = newLimits(c.RequesterRate, c.RequesterBurst)
	r.done = requests.NewRecent()
	var err error
	r.metrics, err = newMetrics(c.Metrics)
	return err
}

// Signers returns the signer names of the requests that the reconciler decides, sorted: for
// RBAC, since for each it needs the verb approve on the resource signers.
func (r *Reconciler) Signers() []string {
	names := make([]string, 0, len(r.signers))
	for name := range r.signers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
