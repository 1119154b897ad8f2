package attesttest

import (
	"context"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest/membership"
)

// claimOf is registryClaim with the UID of another node's Machine.
func claimOf(node, machine, uid string) membership.Claim {
	c := registryClaim(node, machine)
	c.MachineUID = uid
	return c
}

// adopt is a call that must succeed.
func (r *registryRun) adopt(record *membership.Record, uid string) *membership.Record {
	got, err := r.next().Adopt(context.Background(), record, uid)
	return r.done("Adopt "+record.NodeName, got, err)
}

// expectNoUID checks through every handle that a Machine UID has no record.
func (r *registryRun) expectNoUID(uid string) {
	for _, h := range r.handles {
		if got, err := h.LookupMachineUID(context.Background(), uid); err != nil || got != nil {
			r.failf("LookupMachineUID %s: got %+v, error %v, want nothing", uid, got, err)
		}
	}
}

// checkRegistrySecondNameOfUID: who has a copy of a Machine's bootstrap data gets no
// second name with another machine.
func checkRegistrySecondNameOfUID(r *registryRun) {
	first := r.reserve(registryClaim("node-1", "1"), time.Minute)
	second := claimOf("node-2", "2", "uid-of-node-1")
	r.refuseReserve(second, membership.CheckRegistryReserved, true)
	bound := r.bind(first)
	r.refuseReserve(second, membership.CheckRegistryUID, false)
	r.expect(bound)
	r.expectNoName("node-2")
	r.expectNoMachine("test:2")
	r.expect(r.join(registryClaim("node-2", "2"))) // at once, with a UID of its own
	r.expect(r.join(claimOf("node-3", "3", "")))
	r.expect(r.join(claimOf("node-4", "4", ""))) // two Machines without a UID are two
	r.expectNoUID("")
	late := r.reserve(registryClaim("node-5", "5"), time.Minute)
	r.advance(time.Minute)
	r.expectNoUID(late.MachineUID)
	r.expect(r.join(claimOf("node-6", "6", "uid-of-node-5")))
}

// checkRegistryRestingUID: the Machine is gone, so nobody can come with its UID.
func checkRegistryRestingUID(r *registryRun) {
	c := registryClaim("node-1", "1")
	end := r.in(time.Hour)
	r.raise(r.join(c), end)
	r.release("node-1", c.MachineUID)
	again := claimOf("node-2", "1", c.MachineUID)
	r.refuseReserve(again, membership.CheckRegistryUID, false)
	if got, err := r.next().LookupMachineUID(context.Background(), c.MachineUID); err != nil || got == nil {
		r.failf("LookupMachineUID of a resting record: got %v, error %v", got, err)
	} else {
		r.expectState(got, membership.StateResting, time.Time{}, end)
	}
	r.advance(time.Hour + time.Second)
	r.expectNoUID(c.MachineUID)
	r.expect(r.join(again))
}

func checkRegistryAdopt(r *registryRun) {
	bound := r.raise(r.join(registryClaim("node-1", "1")), r.in(time.Hour))
	moved := r.adopt(bound, "uid-after-the-move")
	want := *bound
	want.MachineUID, want.Version = "uid-after-the-move", moved.Version
	if !cmp.Equal(moved, &want) || moved.Version == bound.Version {
		r.failf("Adopt: got no new version or another record: %s", cmp.Diff(&want, moved))
	}
	r.expect(moved)
	r.expectNoUID("uid-of-node-1")
	r.conflicts("before it was adopted", bound)
	r.refuseReserve(registryClaim("node-1", "1"), membership.CheckRegistryUID, false)
	r.release("node-1", "uid-of-node-1") // the Machine that it was moved from
	r.expect(moved)
	if same := r.adopt(moved, "uid-after-the-move"); !cmp.Equal(same, moved) {
		r.failf("Adopt of the same UID changed the record: %s", cmp.Diff(moved, same))
	}
	if _, err := r.next().Adopt(context.Background(), moved, ""); err == nil {
		r.failf("Adopt of no UID was accepted")
	}
}

func checkRegistryAdoptTaken(r *registryRun) {
	first := r.join(registryClaim("node-1", "1"))
	second := r.join(registryClaim("node-2", "2"))
	third := r.reserve(registryClaim("node-3", "3"), time.Minute)
	_, err := r.next().Adopt(context.Background(), first, second.MachineUID)
	r.refused("Adopt of a bound Machine's UID", err, membership.CheckRegistryUID, false)
	_, err = r.next().Adopt(context.Background(), first, third.MachineUID)
	r.refused("Adopt of a reserved Machine's UID", err, membership.CheckRegistryReserved, true)
	_, err = r.next().Adopt(context.Background(), third, "uid-of-its-own")
	r.refused("Adopt of a reservation", err, membership.CheckRegistryConflict, true)
	for _, record := range []*membership.Record{first, second, third} {
		r.expect(record)
	}
}

func checkRegistryUIDRace(r *registryRun) {
	claims := make([]membership.Claim, registryRacers)
	for i := range claims {
		claims[i] = claimOf("node-"+strconv.Itoa(i), strconv.Itoa(i), "uid-of-all")
	}
	winner := r.race(claims, membership.CheckRegistryUID)
	for i := range claims {
		if i != winner {
			r.refuseReserve(claims[i], membership.CheckRegistryUID, false)
			r.expect(r.join(registryClaim(claims[i].NodeName, strconv.Itoa(i))))
		}
	}
}
