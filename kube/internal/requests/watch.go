// Package requests watches certificate requests by their signers, and remembers which ones
// were decided. A controller that decides requests and one that signs them have this in
// common.
//
// However many requests are filed, and however large: a bounded number is held, everybody's
// come in turn, and slow ones hold up neither another signer's nor another requester's.
package requests

import (
	"net/http"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options say how requests are looked at.
type Options struct {
	// Name is the name of the controller.
	Name string
	// Workers is how many requests to each signer are looked at at a time.
	Workers int
	// EveryReplica has every replica look, not only the leader.
	EveryReplica bool
	// Approved leaves out every request that is not approved.
	Approved bool
	// Done has what was looked at, and is looked at no more.
	Done *Recent
	// Limit takes one look from what a requester may have, or says how long it has to wait for
	// one; nil limits no requester.
	Limit func(requester string) time.Duration
	// LeftOut is told of each request that is left for a later list; nil is not called.
	LeftOut func()
}

// Watch has a manager look at a cluster's requests to each of the signers. Each signer is watched
// separately, since a field selector takes one value: other people's requests never leave the
// API server. Each of the readers reads the pending requests to one signer. The check fails until
// they have been listed, and while they cannot be.
func Watch(m manager.Manager, from cluster.Cluster, signers []string, opts Options, look reconcile.TypedFunc[Key]) (readers map[string]Reader, check healthz.Checker, err error) {
	leads := !opts.EveryReplica
	queue := newBacklog(opts, shipped)
	b := builder.TypedControllerManagedBy[Key](m).Named(opts.Name).WithOptions(runtimecontroller.TypedOptions[Key]{
		MaxConcurrentReconciles: opts.Workers * len(signers),
		NeedLeaderElection:      &leads,
		// For the first list: nothing is gained by ending the program while a long one is read, or the
		// API server answers nothing. The check says so.
		CacheSyncTimeout: 24 * time.Hour,
		NewQueue:         func(string, workqueue.TypedRateLimiter[Key]) workqueue.TypedRateLimitingInterface[Key] { return queue },
	})
	readers = map[string]Reader{}
	var all []*pending
	for _, signer := range signers {
		p := newPending(signer, queue)
		if err := p.follow(from); err != nil {
			return nil, nil, err
		}
		all, readers[signer] = append(all, p), p
		b = b.WatchesRawSource(p)
	}
	check = func(r *http.Request) error {
		for _, p := range all {
			if err := p.check(r); err != nil {
				return err
			}
		}
		return nil
	}
	return readers, check, b.Complete(look)
}
