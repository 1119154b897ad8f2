package attesttest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

const registryRacers = 16

// together runs n functions at once.
func together(n int, run func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			run(i)
		})
	}
	start.Done()
	done.Wait()
}

func (r *registryRun) handle(i int) membership.Registry { return r.handles[i%len(r.handles)] }

// checkRegistrySwap lets many raise one record from one version.
func checkRegistrySwap(r *registryRun) {
	bound := r.join(registryClaim("node-1", "1"))
	results := make([]*membership.Record, registryRacers)
	errs := make([]error, registryRacers)
	together(registryRacers, func(i int) {
		results[i], errs[i] = r.handle(i).Raise(context.Background(), bound, r.in(time.Hour+time.Duration(i)*time.Minute))
	})
	var winner *membership.Record
	for i, err := range errs {
		switch {
		case err != nil:
			r.refused("Raise at once with others", err, membership.CheckRegistryConflict, true)
		case winner != nil:
			r.failf("two calls raised the same version of a record")
		default:
			winner = r.done("Raise", results[i], nil)
		}
	}
	if winner == nil {
		r.failf("no call of %d raised the record", registryRacers)
		return
	}
	r.expect(winner)
}

// race lets every claim run for itself and returns the one that was bound.
func (r *registryRun) race(claims []membership.Claim, lost attest.Check) (winner int) {
	bound := make([]*membership.Record, len(claims))
	errs := make([]error, len(claims))
	together(len(claims), func(i int) {
		reserved, err := r.handle(i).Reserve(context.Background(), claims[i], r.in(time.Minute))
		if err == nil {
			bound[i], err = r.handle(i).Bind(context.Background(), reserved)
		}
		errs[i] = err
	})
	winner = -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			r.failf("both %+v and %+v were bound", claims[winner], claims[i])
		case err == nil:
			winner = i
		case !errors.Is(err, lost) && !(errors.Is(err, membership.CheckRegistryReserved) && errors.Is(err, csr.ErrRetry)):
			r.failf("who lost the race got %v, want %s or %s", err, lost, membership.CheckRegistryReserved)
		}
	}
	if winner < 0 {
		r.failf("nobody won the race")
		return 0
	}
	r.expect(bound[winner])
	return winner
}

func checkRegistryNameRace(r *registryRun) {
	claims := make([]membership.Claim, registryRacers)
	for i := range claims {
		claims[i] = registryClaim("node-1", strconv.Itoa(i))
	}
	winner := r.race(claims, membership.CheckRegistryName)
	for i := range claims { // nobody who lost is stuck
		if i != winner {
			r.refuseReserve(claims[i], membership.CheckRegistryName, false)
			r.expect(r.join(registryClaim("own-"+strconv.Itoa(i), strconv.Itoa(i))))
		}
	}
}

func checkRegistryMachineRace(r *registryRun) {
	claims := make([]membership.Claim, registryRacers)
	for i := range claims {
		claims[i] = registryClaim("node-"+strconv.Itoa(i), "1")
	}
	winner := r.race(claims, membership.CheckRegistryMachine)
	for i := range claims {
		if i != winner {
			r.refuseReserve(claims[i], membership.CheckRegistryMachine, false)
			r.expect(r.join(registryClaim(claims[i].NodeName, "own-"+strconv.Itoa(i))))
		}
	}
}
