package controller

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Name is the controller's, in logs, metrics and Events.
const Name = "node-attestation-controller"

// How long a request waits that could not be decided: first, and at most.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// SetupWithManager adds the reconciler to a manager. It watches the requests of each
// signer by itself, since a field selector takes one value: other people's requests never
// leave the API server. The manager's scheme must have certificates.k8s.io/v1.
//
// What it needs of the API server: get, list and watch on certificatesigningrequests,
// update on certificatesigningrequests/approval and /status, and approve on the signers of
// [Reconciler.Signers]; sign as well where an approval by somebody else is to be failed.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	r.writer, r.readers = m.GetClient(), map[string]client.Reader{}
	r.events = r.c.Events
	if r.events == nil {
		r.events = m.GetEventRecorder(Name)
	}
	leads := !r.c.EveryReplica
	b := builder.TypedControllerManagedBy[Key](m).Named(Name).WithOptions(runtimecontroller.TypedOptions[Key]{
		MaxConcurrentReconciles: r.c.Workers,
		NeedLeaderElection:      &leads,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
	})
	for _, signer := range r.Signers() {
		filed, err := cacheOf(m, signer)
		if err != nil {
			return fmt.Errorf("controller: requests to %s: %w", signer, err)
		}
		r.readers[signer] = filed
		b = b.WatchesRawSource(source.TypedKind(filed, &certificatesv1.CertificateSigningRequest{}, enqueue()))
	}
	return b.Complete(reconcile.TypedFunc[Key](r.Reconcile))
}

// cacheOf adds a cache of the requests to one signer to a manager.
func cacheOf(m manager.Manager, signer string) (cache.Cache, error) {
	filed, err := cache.New(m.GetConfig(), cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&certificatesv1.CertificateSigningRequest{}: {Field: fields.OneTermEqualSelector("spec.signerName", signer)},
		},
	})
	if err != nil {
		return nil, err
	}
	return filed, m.Add(filed)
}

// enqueue names the request that an event is about.
func enqueue() handler.TypedEventHandler[*certificatesv1.CertificateSigningRequest, Key] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *certificatesv1.CertificateSigningRequest) []Key {
		return []Key{{SignerName: o.Spec.SignerName, Name: o.Name}}
	})
}
