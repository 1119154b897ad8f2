package controlplane

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/kube/registry"
)

// sweepInterval is how often records that have ended are removed.
const sweepInterval = time.Hour

// sweeper repairs pointers at its start and removes records that have ended. It is a
// manager.Runnable, of the leader.
type sweeper struct{ records *registry.Registry }

// Start sweeps until ctx ends.
func (s sweeper) Start(ctx context.Context) error { //goroutine: the API server's client alone
	repaired, err := s.records.Repair(ctx)
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "failed to repair all AttestedMachine and AttestedMachineUID objects; the next start tries again")
	}
	if repaired != 0 {
		log.FromContext(ctx).Info("repaired AttestedMachine and AttestedMachineUID objects that were missing or named another node: "+
			"they were edited or restored outside the controller", "objects", repaired)
	}
	wait.UntilWithContext(ctx, s.sweep, sweepInterval) //goroutine: in this one; the API server's client alone
	return nil
}

func (s sweeper) sweep(ctx context.Context) {
	removed, err := s.records.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Error(err, "failed to delete every AttestedNode whose certificates have ended; the next sweep tries again")
	}
	if removed != 0 {
		log.FromContext(ctx).Info("removed AttestedNodes that have ended", "records", removed)
	}
}
