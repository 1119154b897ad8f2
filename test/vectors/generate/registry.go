package main

import (
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/test/vectors/forge"
	"github.com/nodeattest/nodeattest/test/vectors/vector"
)

// calls is a list of calls to a registry, and the clock after them. Each step makes a new
// list: one beginning can continue in many ways.
type calls struct {
	now time.Time
	ops []vector.Operation
}

// The good node's pair, and another one.
const (
	node1    = forge.NodeName
	node2    = forge.OtherNode
	machineA = "test:machine-a"
	machineB = "test:machine-b"
	uidOf1   = "uid-of-node-1"
	uidOf2   = "uid-of-node-2"
	uidLater = "uid-after-the-move"
	idOf1    = "test://node-1"
)

type (
	operation = vector.Operation
	found     = vector.RegistryFound
)

func (w *world) calls() calls { return calls{now: w.Now} }

// later advances the clock.
func (c calls) later(d time.Duration) calls { return calls{c.now.Add(d), c.ops} }

func (c calls) add(o operation) calls {
	o.Now = c.now
	return calls{c.now, append(slices.Clone(c.ops), o)}
}

// with changes the last call.
func (c calls) with(how func(*operation)) calls {
	c.ops = slices.Clone(c.ops)
	how(&c.ops[len(c.ops)-1])
	return c
}

// finds makes the last call return that record, which the caller does not keep.
func (c calls) finds(f found) calls {
	return c.with(func(o *operation) { o.Keep, o.Found = "", &f })
}

// refused makes the check refuse the last call.
func (c calls) refused(expect string) calls {
	return c.with(func(o *operation) {
		o.Keep, o.Found, o.Expect, o.Retry = "", nil, expect, expect == "registry-reserved" || expect == "registry-conflict"
	})
}

// reserve makes a reservation for a minute, and keeps the record under the machine's name.
func (c calls) reserve(node, machine string) calls {
	o := operation{Op: "reserve", NodeName: node, Machine: machine, MachineUID: uidOf1, ProviderID: idOf1, Deadline: c.now.Add(time.Minute),
		Keep: machine, Found: &found{State: "reserved", NodeName: node, Machine: machine, Deadline: c.now.Add(time.Minute)}}
	if node == node2 {
		o.MachineUID, o.ProviderID = uidOf2, "test://node-2"
	}
	return c.add(o)
}

// bind makes it final.
func (c calls) bind(machine string) calls {
	return c.add(operation{Op: "bind", Seen: machine, Keep: machine, Found: &found{State: "bound", Machine: machine}})
}

// raise records that certificates may live for the given time.
func (c calls) raise(machine string, d time.Duration) calls {
	end := c.now.Add(d)
	return c.add(operation{Op: "raise", Seen: machine, Keep: machine, LastEnd: end, Found: &found{State: "bound", LastEnd: end}})
}

func (c calls) release(node, uid string) calls {
	return c.add(operation{Op: "release", NodeName: node, MachineUID: uid})
}

// rebind gives a record another machine.
func (c calls) rebind(from, to string) calls {
	return c.add(operation{Op: "rebind", Seen: from, Machine: to, Found: &found{State: "bound", Machine: to}})
}

// adopt gives a record another Machine UID.
func (c calls) adopt(machine, uid string) calls {
	return c.add(operation{Op: "adopt", Seen: machine, MachineUID: uid})
}

// lookup finds a record in that state, or none. So do the next two, for a bound record.
func (c calls) lookup(node, state string) calls {
	return c.look(operation{Op: "lookup", NodeName: node}, state, node)
}

func (c calls) lookupMachine(machine, node string) calls {
	return c.look(operation{Op: "lookupMachine", Machine: machine}, "bound", node)
}

func (c calls) lookupUID(uid, node string) calls {
	return c.look(operation{Op: "lookupMachineUID", MachineUID: uid}, "bound", node)
}

func (c calls) look(o operation, state, node string) calls {
	if state != "" && node != "" {
		o.Found = &found{State: state, NodeName: node}
	}
	return c.add(o)
}

// bound is a pair that has joined, with a certificate valid for an hour.
func (c calls) bound(node, machine string) calls {
	return c.reserve(node, machine).bind(machine).raise(machine, time.Hour)
}

// uid sets the last call's Machine UID.
func uid(s string) func(*operation) { return func(o *operation) { o.MachineUID = s } }

// id sets the last call's provider ID.
func id(s string) func(*operation) { return func(o *operation) { o.ProviderID = s } }

// registry are calls that a registry must refuse, and calls that it must perform.
func (w *world) registry() {
	for _, a := range slices.Concat(w.registryTaken(), w.registryTimes(), w.registryChanged()) {
		last := a.Change.ops[len(a.Change.ops)-1]
		w.refuseAs("registry-"+a.Name, a.What, last.Expect, a.Change.ops, nil).Retry = last.Retry
	}
	for _, a := range w.registryAccepted() {
		w.acceptAs("registry-"+a.Name, a.What, a.Change.ops, nil, nil)
	}
}

// registryTaken are claims to what belongs to someone else.
func (w *world) registryTaken() []forge.Attack[calls] {
	reserved, bound := w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA)
	return listed("claims to what is taken", map[string]calls{
		"second-machine-for-a-name":        bound.reserve(node1, machineB).refused("registry-name"),
		"second-name-for-a-machine":        bound.reserve(node2, machineA).refused("registry-machine"),
		"takeover-of-a-name":               reserved.reserve(node1, machineB).refused("registry-reserved"),
		"takeover-of-a-machine":            reserved.reserve(node2, machineA).refused("registry-reserved"),
		"other-machine-uid":                bound.reserve(node1, machineA).with(uid("uid-of-a-later-machine")).refused("registry-machine-uid"),
		"other-machine-uid-while-reserved": reserved.reserve(node1, machineA).with(uid("uid-of-a-later-machine")).refused("registry-machine-uid"),
		"no-machine-uid":                   bound.reserve(node1, machineA).with(uid("")).refused("registry-machine-uid"),
		"other-provider-id":                bound.reserve(node1, machineA).with(id("test://elsewhere")).refused("registry-provider-id"),
		"provider-id-gone":                 bound.reserve(node1, machineA).with(id("")).refused("registry-provider-id").with(func(o *operation) { o.Retry = true }),
		"swapped-names":                    bound.bound(node2, machineB).reserve(node2, machineA).refused("registry-name"),
		"second-name-for-a-machine-uid":    bound.reserve(node2, machineB).with(uid(uidOf1)).refused("registry-machine-uid"),
		"takeover-of-a-machine-uid":        reserved.reserve(node2, machineB).with(uid(uidOf1)).refused("registry-reserved"),
		"machine-uid-of-a-resting-name":    bound.release(node1, uidOf1).reserve(node2, machineB).with(uid(uidOf1)).refused("registry-machine-uid"),
		"adopt-of-the-uid-of-another-name": bound.bound(node2, machineB).adopt(machineA, uidOf2).refused("registry-machine-uid"),
	})
}

// registryTimes are claims that come too early or too late.
func (w *world) registryTimes() []forge.Attack[calls] {
	reserved, released := w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA).release(node1, uidOf1)
	return listed("claims at the wrong time", map[string]calls{
		"takeover-a-second-early":          reserved.later(time.Minute-time.Second).reserve(node1, machineB).refused("registry-reserved"),
		"bind-at-the-deadline":             reserved.later(time.Minute).bind(machineA).refused("registry-conflict"),
		"bind-after-a-takeover":            reserved.later(time.Minute).reserve(node1, machineB).bind(machineA).refused("registry-conflict"),
		"resting-name":                     released.later(time.Hour).reserve(node1, machineB).refused("registry-resting"),
		"resting-name-of-the-same-machine": released.reserve(node1, machineA).refused("registry-resting"),
	})
}

// registryChanged are calls by a caller whose record is not the one that is stored.
func (w *world) registryChanged() []forge.Attack[calls] {
	reserved, bound := w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA)
	// The caller keeps the record from before.
	stale := reserved.reserve(node1, machineA).finds(found{State: "reserved"}).with(func(o *operation) { o.Now = o.Now.Add(time.Second) }).later(time.Second)
	raced := bound.raise(machineA, 2*time.Hour).finds(found{State: "bound"})
	return listed("records that changed", map[string]calls{
		"bind-of-an-older-version":        stale.bind(machineA).refused("registry-conflict"),
		"raise-of-a-reservation":          reserved.raise(machineA, time.Hour).refused("registry-conflict"),
		"raise-of-an-older-version":       raced.raise(machineA, 3*time.Hour).refused("registry-conflict"),
		"raise-after-release":             bound.release(node1, uidOf1).raise(machineA, 3*time.Hour).refused("registry-conflict"),
		"adopt-of-an-older-version":       raced.adopt(machineA, uidLater).refused("registry-conflict"),
		"rebind-of-a-reservation":         reserved.rebind(machineA, machineB).refused("registry-conflict"),
		"rebind-to-a-machine-with-a-name": bound.bound(node2, machineB).rebind(machineA, machineB).refused("registry-machine"),
		"rebound-machine-comes-back":      bound.rebind(machineA, machineB).reserve(node1, machineA).refused("registry-name"),
	})
}

// registryAccepted are joins that must succeed, and records that end or change.
func (w *world) registryAccepted() []forge.Attack[calls] {
	none, reserved, bound := w.calls(), w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA)
	released := bound.release(node1, uidOf1)
	hence := w.Now.Add(time.Hour)
	filled := none.reserve(node1, machineA).with(id("")).with(func(o *operation) { o.Found = &found{State: "reserved"} }).bind(machineA)
	return listed("claims that succeed", map[string]calls{
		"join":                              none.lookup(node1, "").bound(node1, machineA).lookup(node1, "bound").lookupMachine(machineA, node1),
		"reserved-again-by-the-pair":        reserved.later(30*time.Second).reserve(node1, machineA).later(45*time.Second).bind(machineA).lookup(node1, "bound"),
		"bound-pair-comes-back":             bound.reserve(node1, machineA).finds(found{State: "bound", LastEnd: hence}).lookup(node1, "bound"),
		"takeover-at-the-deadline":          reserved.later(time.Minute).lookup(node1, "").reserve(node1, machineB).bind(machineB).lookupMachine(machineA, ""),
		"provider-id-filled-in":             filled.reserve(node1, machineA).finds(found{State: "bound", ProviderID: idOf1}),
		"released-machine-is-free":          released.lookup(node1, "resting").lookupMachine(machineA, "").bound(node2, machineA),
		"name-rested":                       released.later(time.Hour+time.Second).lookup(node1, "").bound(node1, machineB),
		"released-without-a-certificate":    reserved.bind(machineA).release(node1, uidOf1).lookup(node1, ""),
		"released-while-reserved":           reserved.release(node1, uidOf1).reserve(node1, machineB),
		"release-of-another-machine-object": bound.release(node1, uidOf2).lookup(node1, "bound"),
		"rebound": bound.rebind(machineA, machineB).finds(found{State: "bound", NodeName: node1, Machine: machineB}).
			lookupMachine(machineA, "").lookupMachine(machineB, node1).reserve(node2, machineA),
		"raise-to-an-earlier-end": bound.raise(machineA, time.Minute).finds(found{State: "bound", LastEnd: hence}),
		"adopted": bound.lookupUID(uidOf1, node1).adopt(machineA, uidLater).
			finds(found{State: "bound", NodeName: node1, Machine: machineA, LastEnd: hence}).lookupUID(uidOf1, "").
			lookupUID(uidLater, node1).release(node1, uidOf1).lookup(node1, "bound"),
		"machine-uid-after-the-rest": released.later(time.Hour+time.Second).lookupUID(uidOf1, "").reserve(node2, machineB).with(uid(uidOf1)).bind(machineB).raise(machineB, time.Hour),
	})
}

// firstUse are whole answers and hellos under trust on first use: the registry's records, the list or
// the Nodes decide.
func (w *world) firstUse() {
	day := int64(24 * time.Hour / time.Second)
	machine, other := forge.Identity("machine-1"), forge.Identity("machine-2")
	// In the common environment the inventory has no UIDs, and has the good node's ID.
	reserved := func(ago time.Duration, node, machine string) calls {
		return w.calls().later(-ago).reserve(node, machine).with(func(o *operation) {
			o.MachineUID, o.ProviderID, o.Found = "", "", &found{State: "reserved"}
			if node == node1 {
				o.ProviderID = providerID
			}
		})
	}
	bound := func(node, machine string) calls {
		return reserved(time.Hour, node, machine).bind(machine).raise(machine, 12*time.Hour)
	}
	use := func(c calls, nodes ...string) *vector.Environment {
		return &vector.Environment{FirstUse: &vector.FirstUse{MaxLifetimeSeconds: day, Nodes: nodes, History: c.ops}}
	}
	// renamed has a Machine object for the good node other than the common inventory's.
	renamed := func(e *vector.Environment) *vector.Environment {
		e.Machines = append([]vector.Machine{}, w.set.Environment.Machines...)
		e.Machines[0].UID = "uid-of-a-later-machine"
		return e
	}
	half := 30 * time.Second
	otherID, copied := bound(node1, machine), reserved(time.Hour, node2, other).with(uid("uid-of-a-later-machine")).bind(other)
	otherID.ops[0].ProviderID = "sim://vectors/elsewhere"
	newcomer, renews := w.Forge(w.AKP256, forge.Join{}).Answer(), w.Forge(w.AKP256, renewal).Answer()

	// The cause is listed instead of the expected check.
	for _, a := range listed("first use", map[string]*vector.Environment{
		"node-without-record":           use(calls{}, node1),
		"second-machine":                use(bound(node1, other), node1),
		"second-name":                   use(bound(node2, machine), node2),
		"resting-name":                  use(bound(node1, other).release(node1, "")),
		"other-machine-uid":             renamed(use(bound(node1, machine), node1)),
		"second-name-for-a-machine-uid": renamed(use(copied)),
		"other-provider-id":             use(otherID, node1),
		"on-the-other-road":             &vector.Environment{FirstUse: &vector.FirstUse{EKAlgorithm: "P-256", MaxLifetimeSeconds: day}},
	}) {
		w.refuseAs("first-use-"+a.Name, a.What, "not-a-member", newcomer, a.Change).Cause = a.Expect
	}
	w.refuse("first-use-node-without-record-in-hello", hello{w.goodHello}, use(calls{}, node1)).Cause = "registry-node-without-record"
	w.refuse("first-use-renewal-without-record", renews,
		use(calls{}, node1)).Cause = "registry-requester"
	w.refuse("first-use-renewal-of-a-reservation", renews,
		use(reserved(time.Hour, node1, machine), node1)).Cause = "registry-requester"
	w.refuse("first-use-reserved-name", newcomer,
		use(reserved(half, node1, other))).Retry = true
	w.refuse("first-use-reserved-machine", newcomer,
		use(reserved(half, node2, machine))).Retry = true

	w.accept("first-use-newcomer", newcomer, use(calls{}, node2), resultOf(true))
	w.accept("first-use-known-machine", newcomer, use(bound(node1, machine), node1), resultOf(true))
	w.accept("first-use-after-a-crash", newcomer, use(reserved(half, node1, machine)), resultOf(true))
	w.accept("first-use-renewal", renews, use(bound(node1, machine), node1), resultOf(true))
	w.accept("first-use-plain-node", renews, use(reserved(half, node1, machine), node1), resultOf(true))
}
