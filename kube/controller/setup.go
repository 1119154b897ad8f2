package controller

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// SetupWithManager adds the reconciler to a manager. It watches the requests of each signer
// separately: other people's requests never leave the API server. The scheme of the cluster
// (Config.Cluster, or the manager) must have certificates.k8s.io/v1.
//
// It needs these rights in the API server: list and watch on certificatesigningrequests,
// update on certificatesigningrequests/approval and /status, and approve on the signers of
// [Reconciler.Signers]; also sign, if an approval by somebody else is to be failed.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	from := r.c.Cluster
	if from == nil {
		from = m
	}
	r.writer, r.events = from.GetClient(), r.c.Events
	if r.events == nil {
		r.events = from.GetEventRecorder(r.c.Name)
	}
	var err error
	r.readers, err = requests.Watch(m, from, r.Signers(), requests.Options{Name: r.c.Name, Workers: r.c.Workers, EveryReplica: r.c.EveryReplica}, r.look)
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}
