package controller

import (
	"errors"
	"fmt"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// SetupWithManager adds the reconciler to a manager. It watches the requests of each signer
// separately: other people's requests never leave the API server. The scheme of the cluster
// (Config.Cluster, or the manager) must have certificates.k8s.io/v1.
//
// It needs these rights in the API server: list and watch on certificatesigningrequests,
// update on certificatesigningrequests/approval and /status, and approve on the signers of
// [Reconciler.Signers]; also sign, if another account's approval is to be failed.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	if r == nil || r.c.Providers == nil {
		return errNotMade
	}
	from := r.c.Cluster
	if from == nil {
		from = m
	}
	r.writer, r.events = from.GetClient(), r.c.Events
	if r.events == nil {
		r.events = from.GetEventRecorder(r.c.Name)
	}
	var err error
	r.readers, r.listed, err = requests.Watch(m, from, r.Signers(), requests.Options{
		Name: r.c.Name, Workers: r.c.Workers, EveryReplica: r.c.EveryReplica,
		Done: r.done, Limit: r.limit, LeftOut: r.metrics.leftOut.Inc,
	}, r.look)
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}

// Check fails until the requests have been listed, and while they cannot be: for the manager's
// readiness. On a replica that does not lead it never fails.
func (r *Reconciler) Check(request *http.Request) error {
	if r == nil || r.listed == nil {
		return errNotSetUp
	}
	return r.listed(request)
}

var (
	errNotMade  = errors.New("controller: a reconciler that New did not make")
	errNotSetUp = errors.New("controller: SetupWithManager was not called")
)
