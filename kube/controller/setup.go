package controller

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// Name is the controller's name in logs, metrics and Events.
const Name = "node-attestation-controller"

// Key identifies a certificate request by its signer and its name.
type Key = requests.Key

// SetupWithManager adds the reconciler to a manager. It watches the requests of each signer
// separately: other people's requests never leave the API server. The manager's scheme must
// have certificates.k8s.io/v1.
//
// It needs these rights in the API server: list and watch on certificatesigningrequests,
// update on certificatesigningrequests/approval and /status, and approve on the signers of
// [Reconciler.Signers]; also sign, if an approval by somebody else is to be failed.
func (r *Reconciler) SetupWithManager(m manager.Manager) error {
	r.writer, r.events = m.GetClient(), r.c.Events
	if r.events == nil {
		r.events = m.GetEventRecorder(Name)
	}
	var err error
	r.readers, err = requests.Watch(m, r.Signers(), requests.Options{Name: Name, Workers: r.c.Workers, EveryReplica: r.c.EveryReplica}, r.Reconcile)
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	return nil
}
