// Package requests watches certificate requests by their signers, and remembers which ones
// were decided. A controller that decides requests and one that signs them have this in
// common.
package requests

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Key identifies a certificate request: there is one watch for each signer.
type Key struct {
	// SignerName is the signer under which it is filed.
	SignerName string
	// Name is the name of the object.
	Name string
}

// How long a request that could not be decided waits: at first, and at most.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// Options say how requests are looked at.
type Options struct {
	// Name is the name of the controller.
	Name    string
	Workers int
	// EveryReplica has every replica look, not only the leader.
	EveryReplica bool
}

// Watch has a manager look at a cluster's requests to each of the signers. Each signer is watched
// separately, since a field selector takes one value: other people's requests never leave the
// API server. Each of the readers reads the pending requests to one signer.
func Watch(m manager.Manager, from cluster.Cluster, signers []string, opts Options, look reconcile.TypedFunc[Key]) (readers map[string]Reader, err error) {
	leads := !opts.EveryReplica
	b := builder.TypedControllerManagedBy[Key](m).Named(opts.Name).WithOptions(runtimecontroller.TypedOptions[Key]{
		MaxConcurrentReconciles: opts.Workers,
		NeedLeaderElection:      &leads,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
	})
	waiting, readers := map[string]*pending{}, map[string]Reader{}
	for _, signer := range signers {
		p := newPending(signer)
		if err := p.follow(from); err != nil {
			return nil, err
		}
		waiting[signer], readers[signer] = p, p
		b = b.WatchesRawSource(p)
	}
	return readers, b.Complete(reconcile.TypedFunc[Key](func(ctx context.Context, key Key) (reconcile.Result, error) {
		p := waiting[key.SignerName]
		seen := p.get(key.Name)
		result, err := look(ctx, key)
		if err == nil && result.IsZero() {
			p.looked(key.Name, seen)
		}
		return result, err
	}))
}
