// Package requests watches certificate requests by their signers, and remembers which ones
// were decided, for the controller that decides requests and the one that signs them.
//
// It holds a bounded number of requests and takes the requesters in turn. Slow requests delay
// neither another signer's nor another requester's.
package requests

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options say how requests are looked at.
type Options struct {
	// Name is the name of the controller.
	Name string
	// Cluster is where the requests are; nil means the manager's own cluster.
	Cluster cluster.Cluster
	// Events is where Events go; nil means the cluster's recorder.
	Events events.EventRecorder
	// Workers is how many requests to each signer are looked at at a time.
	Workers int
	// EveryReplica has every replica look, not only the leader.
	EveryReplica bool
	// Approved leaves out every request that is not approved.
	Approved bool
	// Done has the requests that were looked at and are left out from then on.
	Done *Recent
	// Limit takes one look from the requester's rate and returns zero, or returns how long to wait
	// for one; nil limits no requester.
	Limit func(requester string) time.Duration
	// LeftOut is called for each request that is left for a later list; nil is not called.
	LeftOut func()
	// Metrics is where the metrics of waiting requests are registered; nil: nowhere.
	Metrics prometheus.Registerer
}

// Watched reads and writes the requests that [Watch] watches.
type Watched struct {
	// Readers read the pending requests, by signer.
	Readers map[string]Reader
	// Writer updates requests.
	Writer client.SubResourceClientConstructor
	// Events is where Events go; nil: nowhere.
	Events  events.EventRecorder
	pending []*pending
}

// Watch has a manager look at a cluster's requests to each of the signers. Each signer is watched
// separately, since a field selector takes one value: the API server sends no requests to other
// signers.
func Watch(m manager.Manager, signers []string, opts Options, look reconcile.TypedFunc[Key]) (*Watched, error) {
	var from cluster.Cluster = m
	if opts.Cluster != nil {
		from = opts.Cluster
	}
	w := &Watched{Readers: map[string]Reader{}, Writer: from.GetClient(), Events: opts.Events}
	if w.Events == nil {
		w.Events = from.GetEventRecorder(opts.Name)
	}
	leads := !opts.EveryReplica
	queue := newBacklog(opts, shipped)
	if err := queue.register(opts.Metrics); err != nil {
		return nil, err
	}
	b := builder.TypedControllerManagedBy[Key](m).Named(opts.Name).WithOptions(runtimecontroller.TypedOptions[Key]{
		MaxConcurrentReconciles: opts.Workers * len(signers),
		NeedLeaderElection:      &leads,
		// For the first list: ending the program would not speed up a long list, or an API server
		// that does not answer. Check reports both.
		CacheSyncTimeout: 24 * time.Hour,
		NewQueue:         func(string, workqueue.TypedRateLimiter[Key]) workqueue.TypedRateLimitingInterface[Key] { return queue },
	})
	for _, signer := range signers {
		p := newPending(signer, queue)
		if err := p.follow(from); err != nil {
			return nil, err
		}
		w.pending, w.Readers[signer] = append(w.pending, p), p
		b = b.WatchesRawSource(p)
	}
	return w, b.Complete(look)
}

// Get reads a pending request. It returns nil if the request is not pending, or was deleted and
// created again for another signer.
func (w *Watched) Get(ctx context.Context, key Key) (*certificatesv1.CertificateSigningRequest, error) {
	if w == nil { // a reconciler that a manager, already running, is still being given
		return nil, nil
	}
	reader, ok := w.Readers[key.SignerName]
	if !ok {
		return nil, nil
	}
	object := new(certificatesv1.CertificateSigningRequest)
	if err := reader.Get(ctx, client.ObjectKey{Name: key.Name}, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if object.Spec.SignerName != key.SignerName {
		return nil, nil
	}
	return object, nil
}

// Warn reports an Event about a request, with a note that is cut to the length that fits.
func (w *Watched) Warn(object *certificatesv1.CertificateSigningRequest, reason, action, note string) {
	if w.Events != nil {
		w.Events.Eventf(object, nil, corev1.EventTypeWarning, reason, action, "%s", Note(note))
	}
}

var errNotSetUp = errors.New("requests: SetupWithManager was not called")

// Check fails until the requests have been listed, and while they cannot be: for the manager's
// readiness. On a replica that does not lead it never fails.
func (w *Watched) Check(r *http.Request) error {
	if w == nil {
		return errNotSetUp
	}
	for _, p := range w.pending {
		if err := p.check(r); err != nil {
			return err
		}
	}
	return nil
}
