package controlplane

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// enforcedSince is an annotation of the controller's Lease: since when the cluster enforces. A
// controller writes it when it enforces and there is no way around attestation, and removes it when
// it starts to observe.
const enforcedSince = "nodeattest.github.io/enforced-since"

// enforcedInterval is how often an enforcement looks at the Lease, until it need not any more.
const enforcedInterval = 3 * time.Second

// enforcement is the readiness of a controller as far as it depends on ways around attestation.
// Until the cluster has once enforced without any, the controller is not ready while there is one.
// From then on a way around is an alarm (a metric, Events, the log) and no reason to be unready: a
// replica that another user of the cluster can make unready is one that no drain evicts and no new
// image replaces. It is a manager.Runnable of every replica.
type enforcement struct {
	watch             func(*http.Request) error // the check of ways around attestation
	reader            client.Reader
	writer            client.Writer
	lease             client.ObjectKey
	observes, ignores bool // it observes; ways around are allowed
	since             atomic.Bool
}

// NeedLeaderElection says that every replica looks: each has its own readiness.
func (*enforcement) NeedLeaderElection() bool { return false }

// Check is a readiness check.
func (e *enforcement) Check(r *http.Request) error {
	if e.since.Load() {
		return nil
	}
	return e.watch(r)
}

// Start looks until nothing is left to do, and then waits for the end of ctx.
func (e *enforcement) Start(ctx context.Context) error { //goroutine: the API server's client alone
	said := ""
	_ = wait.PollUntilContextCancel(ctx, enforcedInterval, true, func(ctx context.Context) (bool, error) { //goroutine: in this one; the API server's client alone
		done, err := e.look(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			log.FromContext(ctx).Error(err, "failed to note on the Lease whether attestation is enforced; it is tried again", "lease", e.lease)
		}
		return done, nil
	})
	<-ctx.Done()
	return nil
}

// look reads the annotation, and writes or removes it. It says whether that was all.
func (e *enforcement) look(ctx context.Context) (done bool, err error) {
	if e.ignores && !e.observes {
		return true, nil
	}
	passes := !e.ignores && e.watch(nil) == nil
	if passes {
		e.since.Store(true) // of this replica, even if the Lease cannot be written
	}
	var lease coordinationv1.Lease
	if err := e.reader.Get(ctx, e.lease, &lease); err != nil {
		return false, client.IgnoreNotFound(err) // no replica has led yet
	}
	_, was := lease.Annotations[enforcedSince]
	switch {
	case e.observes && was:
		delete(lease.Annotations, enforcedSince)
	case e.observes:
		return true, nil
	case was:
		e.since.Store(true)
		return true, nil
	case !passes:
		return false, nil
	default:
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[enforcedSince] = time.Now().UTC().Format(time.RFC3339)
	}
	err = e.writer.Update(ctx, &lease)
	if apierrors.IsConflict(err) { // the leader has renewed it in between
		return false, nil
	}
	return err == nil, err
}
