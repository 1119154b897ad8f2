package controller

import (
	"errors"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// SetupWithManager adds the reconciler to a manager. It watches the requests of each signer
// separately: the API server sends no requests to other signers. The scheme of the cluster
// (Config.Cluster, or the manager) must have certificates.k8s.io/v1.
//
// It needs these rights in the API server: list and watch on certificatesigningrequests,
// update on certificatesigningrequests/approval and /status, and approve on the signers of
// [Reconciler.Signers]; also sign, if another account's approval is to be failed.
func (r *Reconciler) SetupWithManager(m manager.Manager) (err error) {
	if r == nil || r.c.Providers == nil {
		return errNotMade
	}
	r.watched, err = requests.Watch(m, r.Signers(), requests.Options{
		Name: r.c.Name, Cluster: r.c.Cluster, Events: r.c.Events, Workers: r.c.Workers, EveryReplica: r.c.EveryReplica,
		Done: r.done, Limit: r.limit, LeftOut: r.metrics.leftOut.Inc, Metrics: r.c.Metrics,
	}, r.look)
	if err != nil || r.c.Changes == nil {
		return err
	}
	if err := r.c.Changes(func(node string) { r.refused.change(node, r.c.Now()) }); err != nil {
		return err
	}
	return m.Add(manager.RunnableFunc(r.hint))
}

// Check fails until the requests have been listed, and while they cannot be: for the manager's
// readiness. On a replica that does not lead it never fails.
func (r *Reconciler) Check(request *http.Request) error {
	if r == nil {
		return errNotMade
	}
	return r.watched.Check(request)
}

var errNotMade = errors.New("controller: a reconciler that New did not make")
