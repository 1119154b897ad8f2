package main

import (
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// calls is a list of calls of a registry, and the clock after them. Each step makes a new
// list: one beginning can go on in many ways.
type calls struct {
	now time.Time
	ops []vector.Operation
}

// The pair of the good node, and another one.
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

// finds has the last call return that record, which the caller does not keep.
func (c calls) finds(f found) calls {
	return c.with(func(o *operation) { o.Keep, o.Found = "", &f })
}

// refused has the check refuse the last call.
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

// raise records that certificates may live for that long.
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

// lookup finds a record in that state, or none. So do the next two, of a bound record.
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

// bound is a pair that has joined, with a certificate of an hour.
func (c calls) bound(node, machine string) calls {
	return c.reserve(node, machine).bind(machine).raise(machine, time.Hour)
}

// uid has the last call be of the Machine with that UID.
func uid(s string) func(*operation) { return func(o *operation) { o.MachineUID = s } }

// id has the last call be of that provider ID.
func id(s string) func(*operation) { return func(o *operation) { o.ProviderID = s } }

// registryCase is one list of calls.
type registryCase struct {
	name, what string
	calls      calls
}

// registry are calls of a registry that must not do what they ask for, and those that
// must.
func (w *world) registry() {
	for _, a := range slices.Concat(w.registryTaken(), w.registryTimes(), w.registryChanged()) {
		last := a.calls.ops[len(a.calls.ops)-1]
		w.refuse("registry-"+a.name, a.what, last.Expect, a.calls.ops, nil).Retry = last.Retry
	}
	for _, a := range w.registryAccepted() {
		w.accept("registry-"+a.name, a.what, a.calls.ops, nil, nil)
	}
}

// registryTaken are claims to what belongs to somebody else.
func (w *world) registryTaken() []registryCase {
	reserved, bound := w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA)
	return []registryCase{
		{"second-machine-for-a-name", "Another machine claims a name that is bound.", bound.reserve(node1, machineB).refused("registry-name")},
		{"second-name-for-a-machine", "A machine that is bound claims a second name.", bound.reserve(node2, machineA).refused("registry-machine")},
		{"takeover-of-a-name", "Another machine claims a name that is reserved, before the deadline.",
			reserved.reserve(node1, machineB).refused("registry-reserved")},
		{"takeover-of-a-machine", "A machine that is reserved for one name claims another, before the deadline.",
			reserved.reserve(node2, machineA).refused("registry-reserved")},
		{"other-machine-uid", "The pair comes back with the UID of another Machine object.",
			bound.reserve(node1, machineA).with(uid("uid-of-a-later-machine")).refused("registry-machine-uid")},
		{"other-machine-uid-while-reserved", "The pair reserves again with the UID of another Machine object.",
			reserved.reserve(node1, machineA).with(uid("uid-of-a-later-machine")).refused("registry-machine-uid")},
		{"no-machine-uid", "The pair comes back without a Machine's UID.", bound.reserve(node1, machineA).with(uid("")).refused("registry-machine-uid")},
		{"other-provider-id", "The pair comes back with another provider ID.",
			bound.reserve(node1, machineA).with(id("test://elsewhere")).refused("registry-provider-id")},
		{"provider-id-gone", "The pair comes back without its provider ID.", bound.reserve(node1, machineA).with(id("")).refused("registry-provider-id")},
		{"swapped-names", "Two bound machines claim each other's name.",
			bound.bound(node2, machineB).reserve(node2, machineA).refused("registry-name")},
		{"second-name-for-a-machine-uid", "Another machine claims another name with the Machine UID of a bound record: it has a copy of that Machine's bootstrap data.",
			bound.reserve(node2, machineB).with(uid(uidOf1)).refused("registry-machine-uid")},
		{"takeover-of-a-machine-uid", "Another machine claims another name with the Machine UID of a reservation, before the deadline.",
			reserved.reserve(node2, machineB).with(uid(uidOf1)).refused("registry-reserved")},
		{"machine-uid-of-a-resting-name", "Another machine claims another name with the UID of a Machine that is gone, while its name rests.",
			bound.release(node1, uidOf1).reserve(node2, machineB).with(uid(uidOf1)).refused("registry-machine-uid")},
		{"adopt-of-the-uid-of-another-name", "A record is to take the UID of a Machine that has another name.",
			bound.bound(node2, machineB).adopt(machineA, uidOf2).refused("registry-machine-uid")},
	}
}

// registryTimes are claims that come too early or too late.
func (w *world) registryTimes() []registryCase {
	reserved, released := w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA).release(node1, uidOf1)
	return []registryCase{
		{"takeover-a-second-early", "Another machine claims a reserved name a second before the deadline.",
			reserved.later(time.Minute-time.Second).reserve(node1, machineB).refused("registry-reserved")},
		{"bind-at-the-deadline", "A reservation is bound at its deadline, when it is over.",
			reserved.later(time.Minute).bind(machineA).refused("registry-conflict")},
		{"bind-after-a-takeover", "A reservation is bound after it ended and another machine has reserved the name.",
			reserved.later(time.Minute).reserve(node1, machineB).bind(machineA).refused("registry-conflict")},
		{"resting-name", "Another machine claims a released name in the last second of its last certificate.",
			released.later(time.Hour).reserve(node1, machineB).refused("registry-resting")},
		{"resting-name-of-the-same-machine", "The same machine claims a name that it was released from, and that rests.",
			released.reserve(node1, machineA).refused("registry-resting")},
	}
}

// registryChanged are calls by a caller whose record is not the one that is stored.
func (w *world) registryChanged() []registryCase {
	reserved, bound := w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA)
	// The caller keeps the record that he had before.
	stale := reserved.reserve(node1, machineA).finds(found{State: "reserved"}).with(func(o *operation) { o.Now = o.Now.Add(time.Second) }).later(time.Second)
	raced := bound.raise(machineA, 2*time.Hour).finds(found{State: "bound"})
	return []registryCase{
		{"bind-of-an-older-version", "A reservation is bound by a caller who has not seen that it was made anew.",
			stale.bind(machineA).refused("registry-conflict")},
		{"raise-of-a-reservation", "The last end is raised of a record that is not bound.", reserved.raise(machineA, time.Hour).refused("registry-conflict")},
		{"raise-of-an-older-version", "The last end is raised by a caller who has not seen the last raise.",
			raced.raise(machineA, 3*time.Hour).refused("registry-conflict")},
		{"raise-after-release", "The last end is raised of a machine that is gone.",
			bound.release(node1, uidOf1).raise(machineA, 3*time.Hour).refused("registry-conflict")},
		{"adopt-of-an-older-version", "A record is to take another UID, by a caller who has not seen its last end raised.",
			raced.adopt(machineA, uidLater).refused("registry-conflict")},
		{"rebind-of-a-reservation", "A record that is not bound is given another machine.", reserved.rebind(machineA, machineB).refused("registry-conflict")},
		{"rebind-to-a-machine-with-a-name", "A replaced board is to be a machine that is bound under another name.",
			bound.bound(node2, machineB).rebind(machineA, machineB).refused("registry-machine")},
		{"rebound-machine-comes-back", "The former machine claims the name after the board was replaced.",
			bound.rebind(machineA, machineB).reserve(node1, machineA).refused("registry-name")},
	}
}

// registryAccepted are joins that must succeed, and records that end or change.
func (w *world) registryAccepted() []registryCase {
	none, reserved, bound := w.calls(), w.calls().reserve(node1, machineA), w.calls().bound(node1, machineA)
	released := bound.release(node1, uidOf1)
	hence := w.Now.Add(time.Hour)
	filled := none.reserve(node1, machineA).with(id("")).with(func(o *operation) { o.Found = &found{State: "reserved"} }).bind(machineA)
	return []registryCase{
		{"join", "A machine reserves a name, binds it, and is found under it.",
			none.lookup(node1, "").bound(node1, machineA).lookup(node1, "bound").lookupMachine(machineA, node1)},
		{"reserved-again-by-the-pair", "The pair reserves again at once, after a crash, and has the new deadline.",
			reserved.later(30*time.Second).reserve(node1, machineA).later(45*time.Second).bind(machineA).lookup(node1, "bound")},
		{"bound-pair-comes-back", "A bound pair reserves again and stays bound.",
			bound.reserve(node1, machineA).finds(found{State: "bound", LastEnd: hence}).lookup(node1, "bound")},
		{"takeover-at-the-deadline", "Another machine reserves the name at the deadline, when the reservation is over.",
			reserved.later(time.Minute).lookup(node1, "").reserve(node1, machineB).bind(machineB).lookupMachine(machineA, "")},
		{"provider-id-filled-in", "A provider ID that was not known at the first join is filled in.",
			filled.reserve(node1, machineA).finds(found{State: "bound", ProviderID: idOf1})},
		{"released-machine-is-free", "A released machine takes another name at once, and its former name rests.",
			released.lookup(node1, "resting").lookupMachine(machineA, "").bound(node2, machineA)},
		{"name-rested", "A released name is free the second after its last certificate ended.",
			released.later(time.Hour+time.Second).lookup(node1, "").bound(node1, machineB)},
		{"released-without-a-certificate", "A bound name under which nothing was issued does not rest.",
			reserved.bind(machineA).release(node1, uidOf1).lookup(node1, "")},
		{"released-while-reserved", "A reservation is gone with its Machine.", reserved.release(node1, uidOf1).reserve(node1, machineB)},
		{"release-of-another-machine-object", "The Machine object of another UID is gone, which leaves the record alone.",
			bound.release(node1, uidOf2).lookup(node1, "bound")},
		{"rebound", "A bound record is given another machine, and the former one is free.",
			bound.rebind(machineA, machineB).finds(found{State: "bound", NodeName: node1, Machine: machineB}).
				lookupMachine(machineA, "").lookupMachine(machineB, node1).reserve(node2, machineA)},
		{"raise-to-an-earlier-end", "An earlier last end than the recorded one changes nothing.",
			bound.raise(machineA, time.Minute).finds(found{State: "bound", LastEnd: hence})},
		{"adopted", "A record takes the UID of the Machine object that the inventory was moved to; the end of the former one leaves it alone.",
			bound.lookupUID(uidOf1, node1).adopt(machineA, uidLater).
				finds(found{State: "bound", NodeName: node1, Machine: machineA, LastEnd: hence}).lookupUID(uidOf1, "").
				lookupUID(uidLater, node1).release(node1, uidOf1).lookup(node1, "bound")},
		{"machine-uid-after-the-rest", "A Machine UID is free when its name has rested.",
			released.later(time.Hour+time.Second).lookupUID(uidOf1, "").reserve(node2, machineB).with(uid(uidOf1)).bind(machineB).raise(machineB, time.Hour)},
	}
}

// firstUse are whole answers and hellos that meet trust on first use: what the registry
// has, or what there is beside it, decides.
func (w *world) firstUse() {
	day := int64(24 * time.Hour / time.Second)
	machine, other := forge.Identity("machine-1"), forge.Identity("machine-2")
	// The inventory has no UIDs in the common environment, and the good node's ID.
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
	// renamed has another Machine object for the good node than the common inventory.
	renamed := func(e *vector.Environment) *vector.Environment {
		e.Machines = append([]vector.Machine{}, w.set.Environment.Machines...)
		e.Machines[0].UID = "uid-of-a-later-machine"
		return e
	}
	half := 30 * time.Second
	otherID, copied := bound(node1, machine), reserved(time.Hour, node2, other).with(uid("uid-of-a-later-machine")).bind(other)
	otherID.ops[0].ProviderID = "sim://vectors/elsewhere"
	newcomer, renews := w.Forge(w.AKP256, forge.Join{}).Answer(), w.Forge(w.AKP256, renewal).Answer()

	// In the place of what is expected stands its cause.
	for _, a := range []row[*vector.Environment]{
		{"node-without-record", "A machine that nobody knows asks for the name of a Node that has no record.", "registry-node-without-record", use(calls{}, node1)},
		{"second-machine", "Another machine has the name.", "registry-name", use(bound(node1, other), node1)},
		{"second-name", "The machine has another name.", "registry-machine", use(bound(node2, machine), node2)},
		{"resting-name", "The name rests after another machine that is gone.", "registry-resting", use(bound(node1, other).release(node1, ""))},
		{"other-machine-uid", "The inventory has another Machine object for the name than the record.", "registry-machine-uid",
			renamed(use(bound(node1, machine), node1))},
		{"second-name-for-a-machine-uid", "Another machine came under another name with the UID of this Machine.", "registry-machine-uid", renamed(use(copied))},
		{"other-provider-id", "The record has another provider ID than the inventory.", "registry-provider-id", use(otherID, node1)},
		{"on-the-other-road", "The registry holds EKs, and the machine is known by its AK's certificate: it could come twice.", "registry-scope",
			&vector.Environment{FirstUse: &vector.FirstUse{EKAlgorithm: "P-256", MaxLifetimeSeconds: day}}},
	} {
		w.refuse("first-use-"+a.name, a.what, "not-a-member", newcomer, a.in).Cause = a.expect
	}
	w.refuse("first-use-node-without-record-in-hello", "A machine that nobody knows asks for the name of a Node that has no record.", "not-a-member",
		hello{w.goodHello}, use(calls{}, node1)).Cause = "registry-node-without-record"
	w.refuse("first-use-renewal-without-record", "A node without a record renews its certificate.", "not-a-member", renews,
		use(calls{}, node1)).Cause = "registry-requester"
	w.refuse("first-use-renewal-of-a-reservation", "A node whose record was never bound renews its certificate.", "not-a-member", renews,
		use(reserved(half, node1, machine), node1)).Cause = "registry-requester"
	w.refuse("first-use-reserved-name", "Another machine has reserved the name, and its deadline is not over.", "registry-reserved", newcomer,
		use(reserved(half, node1, other))).Retry = true
	w.refuse("first-use-reserved-machine", "The machine has reserved another name, and the deadline is not over.", "registry-reserved", newcomer,
		use(reserved(half, node2, machine))).Retry = true

	w.accept("first-use-newcomer", "Nobody has the name, and nobody has the machine.", newcomer, use(calls{}, node2), resultOf(true))
	w.accept("first-use-known-machine", "The machine is bound to the name, and comes back to be imaged anew.", newcomer,
		use(bound(node1, machine), node1), resultOf(true))
	w.accept("first-use-after-a-crash", "The pair reserved the name before, and nobody bound it.", newcomer, use(reserved(half, node1, machine)), resultOf(true))
	w.accept("first-use-renewal", "A bound node renews its certificate.", renews, use(bound(node1, machine), node1), resultOf(true))
}
