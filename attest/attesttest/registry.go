package attesttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// A RegistryMaker makes one new and empty registry with the given clock, and
// returns one or several handles on it, all on the same records: what two replicas
// of a control plane would have. It fails the test itself if it cannot.
type RegistryMaker func(t testing.TB, now func() time.Time) []membership.Registry

// RunRegistry holds an implementation of membership.Registry against the contract that
// is written there. Each check is a subtest with a registry of its own, named after
// what must hold; calls go through the handles in turn. It does not see whether
// records survive the end of a process: that is for a test that ends one.
func RunRegistry(t *testing.T, newRegistry RegistryMaker) {
	t.Helper()
	for _, check := range registryChecks {
		t.Run(check.name, func(t *testing.T) {
			if err := runRegistryCheck(t, newRegistry, check.run); err != nil {
				t.Error(err)
			}
		})
	}
}

func runRegistryCheck(t testing.TB, newRegistry RegistryMaker, check func(*registryRun)) (err error) {
	r := &registryRun{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	r.handles = newRegistry(t, r.now)
	if len(r.handles) == 0 {
		return errors.New("attesttest: no registry was made")
	}
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case registryFault:
			err = fault.error
		default:
			panic(fault)
		}
	}()
	check(r)
	return nil
}

// registryFault is the panic that ends a check at the first fault.
type registryFault struct{ error }

// registryRun is one check under way.
type registryRun struct {
	handles []membership.Registry
	turn    int

	mu sync.Mutex
	at time.Time
}

func (r *registryRun) now() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at
}

func (r *registryRun) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = r.at.Add(d)
}

// in is the time that far from now.
func (r *registryRun) in(d time.Duration) time.Time { return r.now().Add(d) }

// next is the handle whose turn it is.
func (r *registryRun) next() membership.Registry {
	r.turn++
	return r.handles[r.turn%len(r.handles)]
}

func (r *registryRun) failf(format string, args ...any) {
	panic(registryFault{fmt.Errorf(format, args...)})
}

// Claims of two machines and two nodes.
func registryClaim(node, machine string) membership.Claim {
	return membership.Claim{
		NodeName:   node,
		Machine:    attest.Identity("test:" + machine),
		MachineUID: "uid-of-" + node,
		ProviderID: "test://" + node,
	}
}

// done checks the outcome of a call that must succeed and return a record.
func (r *registryRun) done(what string, got *membership.Record, err error) *membership.Record {
	switch {
	case err != nil:
		r.failf("%s: got error %v", what, err)
	case got == nil:
		r.failf("%s: got neither record nor error", what)
	case got.Version == "":
		r.failf("%s: got a record without a version", what)
	default:
		return got
	}
	return &membership.Record{}
}

// refused checks the outcome of a call that must be refused by a check, for good or
// so that it is tried again.
func (r *registryRun) refused(what string, err error, check attest.Check, again bool) {
	switch {
	case err == nil:
		r.failf("%s: got no error, want %s", what, check)
	case !errors.Is(err, check):
		r.failf("%s: got error %v, want %s", what, err, check)
	case errors.Is(err, csr.ErrRetry) != again:
		r.failf("%s: got ErrRetry %t, want %t, in %v", what, !again, again, err)
	}
}

func (r *registryRun) reserve(c membership.Claim, d time.Duration) *membership.Record {
	got, err := r.next().Reserve(context.Background(), c, r.in(d))
	return r.done("Reserve "+c.NodeName+" for "+string(c.Machine), got, err)
}

func (r *registryRun) refuseReserve(c membership.Claim, check attest.Check, again bool) {
	_, err := r.next().Reserve(context.Background(), c, r.in(time.Minute))
	r.refused("Reserve "+c.NodeName+" for "+string(c.Machine), err, check, again)
}

func (r *registryRun) bind(record *membership.Record) *membership.Record {
	got, err := r.next().Bind(context.Background(), record)
	return r.done("Bind "+record.NodeName, got, err)
}

// join reserves and binds.
func (r *registryRun) join(c membership.Claim) *membership.Record {
	return r.bind(r.reserve(c, time.Minute))
}

func (r *registryRun) raise(record *membership.Record, end time.Time) *membership.Record {
	got, err := r.next().Raise(context.Background(), record, end)
	return r.done("Raise "+record.NodeName, got, err)
}

func (r *registryRun) rebind(record *membership.Record, machine attest.Identity) *membership.Record {
	got, err := r.next().Rebind(context.Background(), record, machine)
	return r.done("Rebind "+record.NodeName, got, err)
}

// conflicts checks that a record which is not the present one changes nothing.
func (r *registryRun) conflicts(why string, record *membership.Record) {
	ctx := context.Background()
	_, err := r.next().Bind(ctx, record)
	r.refused("Bind of a record "+why, err, membership.CheckRegistryConflict, true)
	r.conflictsBound(why, record)
}

// conflictsBound is conflicts for what only a bound record allows.
func (r *registryRun) conflictsBound(why string, record *membership.Record) {
	ctx := context.Background()
	_, err := r.next().Raise(ctx, record, r.in(time.Hour))
	r.refused("Raise of a record "+why, err, membership.CheckRegistryConflict, true)
	_, err = r.next().Rebind(ctx, record, "test:spare")
	r.refused("Rebind of a record "+why, err, membership.CheckRegistryConflict, true)
	_, err = r.next().Adopt(ctx, record, "uid-spare")
	r.refused("Adopt of a record "+why, err, membership.CheckRegistryConflict, true)
}

func (r *registryRun) release(nodeName, uid string) {
	if err := r.next().Release(context.Background(), nodeName, uid); err != nil {
		r.failf("Release %s: got error %v", nodeName, err)
	}
}

// expect checks through every handle that a record is there, by its Machine UID
// if it has one, and by its machine unless it rests.
func (r *registryRun) expect(want *membership.Record) {
	ctx := context.Background()
	for _, h := range r.handles {
		got, err := h.Lookup(ctx, want.NodeName)
		if err != nil || !cmp.Equal(got, want) {
			r.failf("Lookup %s: got error %v and another record:\n%s", want.NodeName, err, cmp.Diff(want, got))
			return
		}
		if want.MachineUID != "" {
			got, err = h.LookupMachineUID(ctx, want.MachineUID)
			if err != nil || !cmp.Equal(got, want) {
				r.failf("LookupMachineUID %s: got error %v and another record:\n%s", want.MachineUID, err, cmp.Diff(want, got))
				return
			}
		}
		if want.State == membership.StateResting {
			continue
		}
		got, err = h.LookupMachine(ctx, want.Machine)
		if err != nil || !cmp.Equal(got, want) {
			r.failf("LookupMachine %s: got error %v and another record:\n%s", want.Machine, err, cmp.Diff(want, got))
		}
	}
}

// expectNoName checks through every handle that a name has no record.
func (r *registryRun) expectNoName(nodeName string) {
	for _, h := range r.handles {
		if got, err := h.Lookup(context.Background(), nodeName); err != nil || got != nil {
			r.failf("Lookup %s: got %+v, error %v, want nothing", nodeName, got, err)
		}
	}
}

// expectNoMachine is expectNoName for a machine.
func (r *registryRun) expectNoMachine(machine attest.Identity) {
	for _, h := range r.handles {
		if got, err := h.LookupMachine(context.Background(), machine); err != nil || got != nil {
			r.failf("LookupMachine %s: got %+v, error %v, want nothing", machine, got, err)
		}
	}
}

// expectState checks a record's state and times.
func (r *registryRun) expectState(record *membership.Record, state membership.State, deadline, lastEnd time.Time) {
	if record.State != state || !record.Deadline.Equal(deadline) || !record.LastEnd.Equal(lastEnd) {
		r.failf("node %s: got state %q, deadline %s, last end %s, want %q, %s, %s", record.NodeName,
			record.State, record.Deadline, record.LastEnd, state, deadline, lastEnd)
	}
}
