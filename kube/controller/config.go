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

// Providers decide about requests with evidence. *csr.Providers is one.
type Providers interface {
	// SignerNames are the signers of certificates for which there is a provider.
	SignerNames() []string
	// Challenge returns the challenge for a hello.
	Challenge(ctx context.Context, request *csr.Request) ([]byte, error)
	// Verify verifies an answer.
	Verify(ctx context.Context, request *csr.Request) (*csr.Attested, error)
}

// Registry is the part of a membership.Registry that a [Reconciler] needs.
type Registry interface {
	membership.Lookups
	// Bind is that of membership.Registry.
	Bind(ctx context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error)
}

// Lookup is the part of a membership.Registry that finds the record of a node.
type Lookup interface {
	// Lookup is that of membership.Registry.
	Lookup(ctx context.Context, nodeName string) (*membership.Record, error)
}

// Config is what a [Reconciler] is made of. The fields of the first group have no default:
// leaving one out is an error.
type Config struct {
	// Providers decide.
	Providers Providers
	// Challenges are the names of the providers whose nodes file hellos, such as "tpm":
	// under csr.SignerChallenge of each.
	Challenges []string

	// Serving decides about kubelets' own requests for serving certificates, which carry
	// no evidence (csr.SignerKubeletServing). Its SignerNames must be that one name, and
	// its Records nil: they are Registry's. Nil leaves those requests alone.
	Serving *csr.Policy
	// Registry is the one that Providers admit by, such as *registry.Registry, or all of
	// them (registry.Several). It remembers what Kubernetes' own signer has signed after an
	// approval, for Serving, which needs it. Nil remembers nothing.
	Registry Registry
	// Stale looks up, out of a cache that may be behind, where a certificate is to be
	// recorded; nil means Registry. What is written is written over the version that was
	// looked up, and where that fails Registry is asked.
	Stale Lookup

	// RequesterRate is how many requests of one requester are looked at in a second, over
	// time, and RequesterBurst how many at once; zero means DefaultRequesterRate and
	// DefaultRequesterBurst. All who come with one bootstrap token are one requester.
	// What is too much waits.
	RequesterRate  float64
	RequesterBurst int
	// Workers is how many requests are decided at a time; zero means DefaultWorkers.
	Workers int
	// EveryReplica has every replica decide, not only the one that leads: of two that do
	// so at once one loses its write.
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

// Signers are the signer names of the requests that the reconciler decides about, in
// order: for RBAC, whose verb approve on the resource signers it needs for each.
func (r *Reconciler) Signers() []string {
	names := make([]string, 0, len(r.signers))
	for name := range r.signers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
