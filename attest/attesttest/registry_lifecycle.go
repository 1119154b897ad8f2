package attesttest

import (
	"context"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest/membership"
)

func checkRegistryRelease(r *registryRun) {
	r.reserve(registryClaim("node-1", "1"), time.Minute)
	r.release("node-1", "uid-of-node-1")
	r.expectNoName("node-1")
	r.expectNoMachine("test:1")
	r.join(registryClaim("node-1", "2"))
	r.release("node-1", "uid-of-node-1")
	r.expectNoName("node-1")
	r.expectNoMachine("test:2")
	expired := r.join(registryClaim("node-1", "3"))
	r.raise(expired, r.in(time.Hour))
	r.advance(time.Hour + time.Second)
	r.release("node-1", "uid-of-node-1")
	r.expectNoName("node-1")
	r.expect(r.join(registryClaim("node-1", "1")))
}

func checkRegistryRest(r *registryRun) {
	c := registryClaim("node-1", "1")
	end := r.in(time.Hour)
	r.raise(r.join(c), end)
	r.release(c.NodeName, c.MachineUID)
	r.expectNoMachine(c.Machine)
	for _, machine := range []string{"1", "2"} {
		r.refuseReserve(registryClaim("node-1", machine), membership.CheckRegistryResting, false)
	}
	r.expect(r.join(registryClaim("node-2", "1"))) // the machine is free
	r.expectNoMachine("test:2")
	r.advance(time.Hour) // the last second of the last certificate
	r.refuseReserve(registryClaim("node-1", "3"), membership.CheckRegistryResting, false)
	if got, err := r.next().Lookup(context.Background(), "node-1"); err != nil || got == nil {
		r.failf("Lookup of a resting name: got %v, error %v", got, err)
	} else {
		r.expectState(got, membership.StateResting, time.Time{}, end)
		r.conflicts("that rests", got)
	}
	r.advance(time.Second)
	r.expectNoName("node-1")
	fresh := r.join(registryClaim("node-1", "3"))
	r.expectState(fresh, membership.StateBound, time.Time{}, time.Time{})
}

func checkRegistryReleaseUID(r *registryRun) {
	c := registryClaim("node-1", "1")
	bound := r.raise(r.join(c), r.in(time.Hour))
	r.release("node-1", "uid-of-another")
	r.release("node-1", "")
	r.release("node-2", c.MachineUID)
	r.expect(bound)
	r.release("node-1", c.MachineUID)
	r.release("node-1", c.MachineUID) // again: it rests all the same
	r.refuseReserve(c, membership.CheckRegistryResting, false)
	unnamed := registryClaim("node-3", "3")
	unnamed.MachineUID = ""
	r.join(unnamed)
	r.release("node-3", "")
	r.expectNoName("node-3")
}

func checkRegistryReleased(r *registryRun) {
	bound := r.raise(r.join(registryClaim("node-1", "1")), r.in(time.Hour))
	reserved := r.reserve(registryClaim("node-2", "2"), time.Minute)
	r.release("node-1", "uid-of-node-1")
	r.release("node-2", "uid-of-node-2")
	r.conflicts("that was released", bound)
	r.conflicts("that was released", reserved)
	r.expectNoName("node-2")
}

func checkRegistryVersions(r *registryRun) {
	c := registryClaim("node-1", "1")
	seen := map[string]bool{}
	for range 5 {
		reserved := r.reserve(c, time.Minute)
		bound := r.bind(reserved)
		if seen[reserved.Version] || seen[bound.Version] || reserved.Version == bound.Version {
			r.failf("versions %q and %q were given before", reserved.Version, bound.Version)
		}
		seen[reserved.Version], seen[bound.Version] = true, true
		r.release(c.NodeName, c.MachineUID)
		second := r.reserve(c, time.Minute)
		r.conflicts("of an earlier life", bound)
		r.conflicts("of an earlier life", reserved)
		if seen[second.Version] {
			r.failf("version %q was given before", second.Version)
		}
		seen[second.Version] = true
		r.release(c.NodeName, c.MachineUID)
	}
}

func checkRegistryRebind(r *registryRun) {
	bound := r.raise(r.join(registryClaim("node-1", "1")), r.in(time.Hour))
	moved := r.rebind(bound, "test:2")
	want := *bound
	want.Machine, want.Version = "test:2", moved.Version
	if !cmp.Equal(moved, &want) || moved.Version == bound.Version {
		r.failf("Rebind: got no new version or another record: %s", cmp.Diff(&want, moved))
	}
	r.expect(moved)
	r.expectNoMachine("test:1")
	r.conflicts("before it was rebound", bound)
	r.refuseReserve(registryClaim("node-1", "1"), membership.CheckRegistryName, false)
	r.refuseReserve(registryClaim("node-2", "2"), membership.CheckRegistryMachine, false)
	r.expect(r.join(registryClaim("node-3", "1")))
	if same := r.rebind(moved, "test:2"); !cmp.Equal(same, moved) {
		r.failf("Rebind to the same machine changed the record: %s", cmp.Diff(moved, same))
	}
}

func checkRegistryRebindTaken(r *registryRun) {
	first := r.join(registryClaim("node-1", "1"))
	second := r.join(registryClaim("node-2", "2"))
	third := r.reserve(registryClaim("node-3", "3"), time.Minute)
	_, err := r.next().Rebind(context.Background(), first, "test:2")
	r.refused("Rebind to a bound machine", err, membership.CheckRegistryMachine, false)
	_, err = r.next().Rebind(context.Background(), first, "test:3")
	r.refused("Rebind to a reserved machine", err, membership.CheckRegistryReserved, true)
	for _, record := range []*membership.Record{first, second, third} {
		r.expect(record)
	}
	r.advance(time.Minute)
	r.expect(r.rebind(first, "test:3"))
	r.expectNoName("node-3")
}
