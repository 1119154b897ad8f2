// Package requests watches certificate requests by their signers, and remembers which ones
// were decided: what a controller that decides and one that signs have in common.
package requests

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Key names a certificate request: there is a watch for each signer.
type Key struct {
	// SignerName is the signer under which it is filed.
	SignerName string
	// Name is the object's.
	Name string
}

// How long a request waits that could not be decided: first, and at most.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = time.Minute
)

// Options are how requests are looked at.
type Options struct {
	// Name is the controller's.
	Name    string
	Workers int
	// EveryReplica has every replica look, not only the one that leads.
	EveryReplica bool
}

// Watch has a manager look at the requests to each of some signers. It watches each by
// itself, since a field selector takes one value: other people's requests never leave the
// API server. The readers are caches of the requests to one signer each.
func Watch(m manager.Manager, signers []string, o Options, look reconcile.TypedFunc[Key]) (readers map[string]client.Reader, err error) {
	leads := !o.EveryReplica
	b := builder.TypedControllerManagedBy[Key](m).Named(o.Name).WithOptions(runtimecontroller.TypedOptions[Key]{
		MaxConcurrentReconciles: o.Workers,
		NeedLeaderElection:      &leads,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
	})
	readers = make(map[string]client.Reader, len(signers))
	for _, signer := range signers {
		filed, err := cacheOf(m, signer)
		if err != nil {
			return nil, fmt.Errorf("requests to %s: %w", signer, err)
		}
		readers[signer] = filed
		b = b.WatchesRawSource(source.TypedKind(filed, &certificatesv1.CertificateSigningRequest{}, enqueue()))
	}
	return readers, b.Complete(look)
}

// cacheOf adds a cache of the requests to one signer to a manager.
func cacheOf(m manager.Manager, signer string) (cache.Cache, error) {
	filed, err := cache.New(m.GetConfig(), cache.Options{
		HTTPClient: m.GetHTTPClient(), Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&certificatesv1.CertificateSigningRequest{}: {Field: fields.OneTermEqualSelector("spec.signerName", signer), Transform: trim},
		},
	})
	if err != nil {
		return nil, err
	}
	return filed, m.Add(filed)
}

// trim leaves out what nobody reads of a request in a cache: who wrote its fields and, once
// it is finished, everything but what it is, that it is finished, and a certificate that
// Kubernetes' own signer made, which is to be recorded. The API server keeps finished
// requests for an hour.
func trim(object any) (any, error) {
	r, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok { // a deleted one
		return object, nil
	}
	r.ManagedFields = nil
	var end []certificatesv1.CertificateSigningRequestCondition
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			end = []certificatesv1.CertificateSigningRequestCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	certificate := r.Status.Certificate
	switch {
	case len(certificate) == 0 && end == nil:
		return r, nil
	case len(certificate) != 0 && r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName:
		certificate = signed
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion, DeletionTimestamp: r.DeletionTimestamp},
		Spec:       certificatesv1.CertificateSigningRequestSpec{SignerName: r.Spec.SignerName},
		Status:     certificatesv1.CertificateSigningRequestStatus{Certificate: certificate, Conditions: end},
	}, nil
}

// signed stands for a certificate in a cache.
var signed = []byte("signed")

// enqueue names the request that an event is about.
func enqueue() handler.TypedEventHandler[*certificatesv1.CertificateSigningRequest, Key] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *certificatesv1.CertificateSigningRequest) []Key {
		return []Key{{SignerName: o.Spec.SignerName, Name: o.Name}}
	})
}
