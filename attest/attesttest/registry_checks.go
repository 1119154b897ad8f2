package attesttest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
)

// registryChecks are what RunRegistry runs. The names are stable.
var registryChecks = []struct {
	name string
	run  func(*registryRun)
}{
	{"an empty registry has no records", checkRegistryEmpty},
	{"a claim is reserved, then bound", checkRegistryJoin},
	{"a second machine does not get the name", checkRegistrySecondMachine},
	{"a second name is not given to a machine", checkRegistrySecondName},
	{"a reservation holds until its deadline", checkRegistryReservation},
	{"a machine is free at the deadline", checkRegistryMachineDeadline},
	{"the same pair reserves again at once", checkRegistrySamePair},
	{"a reservation cannot be bound after its deadline", checkRegistryLateBind},
	{"a bound record stays, and the same pair passes", checkRegistryBoundStays},
	{"a record is of one Machine UID", checkRegistryUID},
	{"a record is of one provider ID", checkRegistryProviderID},
	{"the last end is raised and never lowered", checkRegistryRaise},
	{"of two changes to one version one succeeds", checkRegistrySwap},
	{"what had no certificate is free when released", checkRegistryRelease},
	{"a name rests until its last certificate has expired", checkRegistryRest},
	{"release is of one Machine UID", checkRegistryReleaseUID},
	{"a record that was released changes nothing", checkRegistryReleased},
	{"a version is never given again", checkRegistryVersions},
	{"rebind replaces the machine and nothing else", checkRegistryRebind},
	{"rebind refuses a machine of another name", checkRegistryRebindTaken},
	{"a second name is not given to a Machine UID", checkRegistrySecondNameOfUID},
	{"a Machine UID is not used again while its name rests", checkRegistryRestingUID},
	{"adopt takes another Machine UID and nothing else", checkRegistryAdopt},
	{"adopt refuses the Machine UID of another name", checkRegistryAdoptTaken},
	{"returned records are copies", checkRegistryCopies},
	{"bad arguments are errors", checkRegistryArguments},
	{"a context that is over changes nothing", checkRegistryContext},
	{"one machine wins a race for a name", checkRegistryNameRace},
	{"one name wins a race for a machine", checkRegistryMachineRace},
	{"one name wins a race for a Machine UID", checkRegistryUIDRace},
}

func checkRegistryEmpty(r *registryRun) {
	r.expectNoName("node-1")
	r.expectNoMachine("test:1")
	scope := r.handles[0].Scope()
	for _, h := range r.handles {
		if h.Scope() != scope {
			r.failf("Scope: got %s and %s through two handles", scope, h.Scope())
		}
	}
	if _, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{}); err != nil {
		r.failf("Scope: %v", err)
	}
}

func checkRegistryJoin(r *registryRun) {
	c := registryClaim("node-1", "1")
	deadline := r.in(time.Minute)
	reserved := r.reserve(c, time.Minute)
	r.expectState(reserved, membership.StateReserved, deadline, time.Time{})
	if reserved.Claim != c {
		r.failf("Reserve: got another claim: %s", cmp.Diff(c, reserved.Claim))
	}
	r.expect(reserved)
	bound := r.bind(reserved)
	r.expectState(bound, membership.StateBound, time.Time{}, time.Time{})
	if bound.Claim != c || bound.Version == reserved.Version {
		r.failf("Bind: got another claim or no new version: %+v", bound)
	}
	r.expect(bound)
	if again := r.bind(bound); !cmp.Equal(again, bound) {
		r.failf("Bind of a bound record changed it: %s", cmp.Diff(bound, again))
	}
	r.expect(bound)
	other := r.join(registryClaim("node-2", "2"))
	r.expect(other)
	r.expect(bound)
}

func checkRegistrySecondMachine(r *registryRun) {
	first := r.join(registryClaim("node-1", "1"))
	second := registryClaim("node-1", "2")
	r.refuseReserve(second, membership.CheckRegistryName, false)
	r.expect(first)
	r.expectNoMachine(second.Machine)
	r.expect(r.join(registryClaim("node-2", "2")))
}

func checkRegistrySecondName(r *registryRun) {
	first := r.join(registryClaim("node-1", "1"))
	r.refuseReserve(registryClaim("node-2", "1"), membership.CheckRegistryMachine, false)
	r.expect(first)
	r.expectNoName("node-2")
	r.expect(r.join(registryClaim("node-2", "2"))) // at once: a refused claim reserves nothing
}

func checkRegistryReservation(r *registryRun) {
	first := r.reserve(registryClaim("node-1", "1"), time.Minute)
	second := registryClaim("node-1", "2")
	r.refuseReserve(second, membership.CheckRegistryReserved, true)
	r.expectNoMachine(second.Machine)
	r.refuseReserve(registryClaim("node-2", "1"), membership.CheckRegistryReserved, true)
	r.expectNoName("node-2")
	r.advance(time.Minute - time.Second)
	r.refuseReserve(second, membership.CheckRegistryReserved, true)
	r.expect(first)
	r.advance(time.Second)
	r.expectNoName("node-1")
	r.expectNoMachine(first.Machine)
	taken := r.reserve(second, time.Minute)
	r.conflicts("of a reservation that was taken over", first)
	r.refuseReserve(registryClaim("node-1", "1"), membership.CheckRegistryReserved, true)
	r.expect(r.bind(taken))
	r.expect(r.join(registryClaim("node-3", "1"))) // who lost is free for another name
}

func checkRegistryMachineDeadline(r *registryRun) {
	old := r.reserve(registryClaim("node-1", "1"), time.Minute)
	r.advance(time.Minute)
	moved := r.reserve(registryClaim("node-2", "1"), time.Minute)
	r.expectNoName("node-1")
	r.conflicts("of a machine that has moved on", old)
	r.expect(r.bind(moved))
	r.expect(r.join(registryClaim("node-1", "2")))
}

func checkRegistrySamePair(r *registryRun) {
	c := registryClaim("node-1", "1")
	first := r.reserve(c, time.Minute)
	r.advance(50 * time.Second)
	deadline := r.in(time.Minute)
	second := r.reserve(c, time.Minute)
	r.expectState(second, membership.StateReserved, deadline, time.Time{})
	r.conflicts("that was reserved again", first)
	r.advance(50 * time.Second) // past the first deadline
	r.refuseReserve(registryClaim("node-1", "2"), membership.CheckRegistryReserved, true)
	r.expect(r.bind(second))
}

func checkRegistryLateBind(r *registryRun) {
	c := registryClaim("node-1", "1")
	late := r.reserve(c, time.Minute)
	r.conflictsBound("that is only reserved", late)
	r.advance(time.Minute)
	r.conflicts("whose reservation is over", late)
	r.expectNoName("node-1")
	r.expect(r.join(c))
}

func checkRegistryBoundStays(r *registryRun) {
	c := registryClaim("node-1", "1")
	bound := r.join(c)
	r.advance(10 * 365 * 24 * time.Hour)
	r.refuseReserve(registryClaim("node-1", "2"), membership.CheckRegistryName, false)
	if again := r.reserve(c, time.Minute); !cmp.Equal(again, bound) {
		r.failf("Reserve of a bound pair changed the record: %s", cmp.Diff(bound, again))
	}
	r.expect(bound)
}

func checkRegistryUID(r *registryRun) {
	c := registryClaim("node-1", "1")
	other, none := c, c
	other.MachineUID, none.MachineUID = "uid-of-another", ""
	reserved := r.reserve(c, time.Minute)
	r.refuseReserve(other, membership.CheckRegistryUID, false)
	bound := r.bind(reserved)
	r.refuseReserve(other, membership.CheckRegistryUID, false)
	r.refuseReserve(none, membership.CheckRegistryUID, false)
	r.expect(bound)
}

func checkRegistryProviderID(r *registryRun) {
	c := registryClaim("node-1", "1")
	other, none := c, c
	other.ProviderID, none.ProviderID = "test://another", ""
	reserved := r.reserve(c, time.Minute)
	r.refuseReserve(other, membership.CheckRegistryProviderID, false)
	bound := r.bind(reserved)
	r.refuseReserve(other, membership.CheckRegistryProviderID, false)
	r.refuseReserve(none, membership.CheckRegistryProviderID, false)
	r.expect(bound)

	late := registryClaim("node-2", "2")
	late.ProviderID = ""
	unknown := r.raise(r.join(late), r.in(time.Hour))
	r.expect(r.reserve(late, time.Minute))
	late.ProviderID = "test://late"
	filled := r.reserve(late, time.Minute)
	if filled.Claim != late || filled.Version == unknown.Version {
		r.failf("Reserve with a provider ID that was unknown: got %+v", filled)
	}
	r.expectState(filled, membership.StateBound, time.Time{}, r.in(time.Hour))
	r.expect(filled)
}

func checkRegistryRaise(r *registryRun) {
	bound := r.join(registryClaim("node-1", "1"))
	end := r.in(24 * time.Hour)
	raised := r.raise(bound, end)
	r.expectState(raised, membership.StateBound, time.Time{}, end)
	r.expect(raised)
	r.conflicts("before it was raised", bound)
	if same := r.raise(raised, end.Add(-time.Hour)); !cmp.Equal(same, raised) {
		r.failf("Raise to an earlier end changed the record: %s", cmp.Diff(raised, same))
	}
	r.expect(raised)
	up := r.raise(raised, end.Add(time.Nanosecond))
	r.expectState(up, membership.StateBound, time.Time{}, end.Add(time.Second))
	again := r.reserve(up.Claim, time.Minute)
	r.expectState(again, membership.StateBound, time.Time{}, end.Add(time.Second))
}

func checkRegistryCopies(r *registryRun) {
	bound := r.join(registryClaim("node-1", "1"))
	want := *bound
	bound.Machine, bound.MachineUID, bound.State = "test:9", "uid-of-another", membership.StateResting
	r.expect(&want)
	for _, h := range r.handles {
		if got, err := h.Lookup(context.Background(), "node-1"); err == nil && got != nil {
			got.Machine = "test:9"
		}
		if got, err := h.LookupMachine(context.Background(), "test:1"); err == nil && got != nil {
			got.NodeName = "node-9"
		}
		if got, err := h.LookupMachineUID(context.Background(), want.MachineUID); err == nil && got != nil {
			got.Machine = "test:9"
		}
	}
	r.expect(&want)
}

func checkRegistryArguments(r *registryRun) {
	ctx := context.Background()
	good := registryClaim("node-1", "1")
	bad := map[string]func(c *membership.Claim){
		"no node name":           func(c *membership.Claim) { c.NodeName = "" },
		"no valid node name":     func(c *membership.Claim) { c.NodeName = "Node_1" },
		"no machine":             func(c *membership.Claim) { c.Machine = "" },
		"a machine without kind": func(c *membership.Claim) { c.Machine = "1" },
		"an empty kind":          func(c *membership.Claim) { c.Machine = ":1" },
		"a kind alone":           func(c *membership.Claim) { c.Machine = "test:" },
		"a machine in two lines": func(c *membership.Claim) { c.Machine = "test:1\n2" },
		"a machine that is long": func(c *membership.Claim) {
			c.Machine = attest.Identity("test:" + strings.Repeat("1", message.MaxIdentitySize))
		},
		"a UID that is long":      func(c *membership.Claim) { c.MachineUID = strings.Repeat("u", membership.MaxMachineUIDSize+1) },
		"a UID that is not UTF-8": func(c *membership.Claim) { c.MachineUID = "\xff" },
		"a provider ID with NUL":  func(c *membership.Claim) { c.ProviderID = "test://\x00" },
	}
	for what, change := range bad {
		c := good
		change(&c)
		if _, err := r.next().Reserve(ctx, c, r.in(time.Minute)); err == nil {
			r.failf("Reserve: %s was accepted", what)
		}
		r.expectNoMachine(c.Machine)
	}
	for _, d := range []time.Duration{-time.Second, 0, membership.MaxReservation + time.Second} {
		if _, err := r.next().Reserve(ctx, good, r.in(d)); err == nil {
			r.failf("Reserve: a deadline in %s was accepted", d)
		}
	}
	r.expectNoName("node-1")
	bound := r.join(good)
	if _, err := r.next().Rebind(ctx, bound, "1"); err == nil {
		r.failf("Rebind: a machine without kind was accepted")
	}
	_, bind := r.next().Bind(ctx, nil)
	_, raise := r.next().Raise(ctx, nil, r.in(time.Minute))
	_, rebind := r.next().Rebind(ctx, nil, "test:2")
	_, adopt := r.next().Adopt(ctx, nil, "uid")
	if bind == nil || raise == nil || rebind == nil || adopt == nil {
		r.failf("a nil record was accepted: %v, %v, %v, %v", bind, raise, rebind, adopt)
	}
	for _, uid := range []string{"", strings.Repeat("u", membership.MaxMachineUIDSize+1)} {
		if _, err := r.next().Adopt(ctx, bound, uid); err == nil {
			r.failf("Adopt: a UID of %d bytes was accepted", len(uid))
		}
	}
	if got, err := r.next().LookupMachineUID(ctx, ""); got != nil || err != nil {
		r.failf("LookupMachineUID of nothing: got %v, error %v", got, err)
	}
	r.expect(bound)
}

func checkRegistryContext(r *registryRun) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	bound := r.join(registryClaim("node-1", "1"))
	h := r.next()
	calls := map[string]func() error{
		"Reserve":       func() error { _, err := h.Reserve(over, registryClaim("node-2", "2"), r.in(time.Minute)); return err },
		"Bind":          func() error { _, err := h.Bind(over, bound); return err },
		"Raise":         func() error { _, err := h.Raise(over, bound, r.in(time.Hour)); return err },
		"Rebind":        func() error { _, err := h.Rebind(over, bound, "test:2"); return err },
		"Release":       func() error { return h.Release(over, "node-1", "uid-of-node-1") },
		"Lookup":        func() error { _, err := h.Lookup(over, "node-1"); return err },
		"LookupMachine": func() error { _, err := h.LookupMachine(over, "test:1"); return err },
		"Adopt":         func() error { _, err := h.Adopt(over, bound, "uid-2"); return err },
		"LookupMachineUID": func() error {
			_, err := h.LookupMachineUID(over, "uid-of-node-1")
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			r.failf("%s with a context that is over: got %v, want context.Canceled", name, err)
		}
	}
	r.expect(bound)
	r.expectNoName("node-2")
}
