package main

import (
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// calls is a list of calls of a registry in the making.
type calls struct {
	now time.Time
	ops []vector.Operation
}

// The pair of the good node, and another one.
const (
	machineA = "test:machine-a"
	machineB = "test:machine-b"
	uidOf1   = "uid-of-node-1"
	uidOf2   = "uid-of-node-2"
	idOf1    = "test://node-1"
	idOf2    = "test://node-2"
)

func (w *world) calls() *calls { return &calls{now: w.Now} }

// later advances the clock.
func (c *calls) later(d time.Duration) *calls {
	c.now = c.now.Add(d)
	return c
}

func (c *calls) add(o vector.Operation) *calls {
	o.Now = c.now
	c.ops = append(c.ops, o)
	return c
}

// claim is what a pair asks for, for a minute.
func (c *calls) claim(node, machine string) vector.Operation {
	o := vector.Operation{Op: "reserve", NodeName: node, Machine: machine, MachineUID: uidOf1, ProviderID: idOf1, Deadline: c.now.Add(time.Minute)}
	if node == forge.OtherNode {
		o.MachineUID, o.ProviderID = uidOf2, idOf2
	}
	return o
}

// reserve makes a reservation that succeeds, and keeps the record under the machine's
// name.
func (c *calls) reserve(node, machine string) *calls {
	o := c.claim(node, machine)
	o.Keep, o.Found = machine, &vector.RegistryFound{State: "reserved", NodeName: node, Machine: machine, Deadline: o.Deadline}
	return c.add(o)
}

// bind makes it final.
func (c *calls) bind(machine string) *calls {
	return c.add(vector.Operation{Op: "bind", Seen: machine, Keep: machine, Found: &vector.RegistryFound{State: "bound", Machine: machine}})
}

// raise records that certificates may live for that long.
func (c *calls) raise(machine string, d time.Duration) *calls {
	end := c.now.Add(d)
	return c.add(vector.Operation{Op: "raise", Seen: machine, Keep: machine, LastEnd: end, Found: &vector.RegistryFound{State: "bound", LastEnd: end}})
}

func (c *calls) release(node, uid string) *calls {
	return c.add(vector.Operation{Op: "release", NodeName: node, MachineUID: uid})
}

// lookup finds a record in that state, or none.
func (c *calls) lookup(node, state string) *calls {
	o := vector.Operation{Op: "lookup", NodeName: node}
	if state != "" {
		o.Found = &vector.RegistryFound{State: state, NodeName: node}
	}
	return c.add(o)
}

func (c *calls) lookupMachine(machine, node string) *calls {
	o := vector.Operation{Op: "lookupMachine", Machine: machine}
	if node != "" {
		o.Found = &vector.RegistryFound{State: "bound", NodeName: node}
	}
	return c.add(o)
}

// bound is a pair that has joined, with a certificate of an hour.
func (c *calls) bound(node, machine string) *calls {
	return c.reserve(node, machine).bind(machine).raise(machine, time.Hour)
}

// refused ends the list with a call that the check refuses.
func (c *calls) refused(o vector.Operation, expect string, retry bool) *calls {
	o.Expect, o.Retry = expect, retry
	return c.add(o)
}

// registry are calls of a registry that must not do what they ask for, and those that
// must.
func (w *world) registry() {
	for _, a := range slices.Concat(w.registryTaken(), w.registryTimes(), w.registryChanged(), w.registryUIDs()) {
		last := a.calls.ops[len(a.calls.ops)-1]
		w.add(&vector.Vector{Name: "registry-" + a.name, Class: "binding", Level: vector.LevelRegistry, Description: a.what,
			Expect: last.Expect, Package: "attest", Retry: last.Retry, Registry: a.calls.ops})
	}
	for _, a := range slices.Concat(w.registryAccepted(), w.registryLives(), w.registryAdopted()) {
		w.add(&vector.Vector{Name: "registry-" + a.name, Class: "accepted", Level: vector.LevelRegistry, Description: a.what, Registry: a.calls.ops})
	}
}

// registryCase is one list of calls.
type registryCase struct {
	name, what string
	calls      *calls
}

// registryTaken are claims to what belongs to somebody else.
func (w *world) registryTaken() []registryCase {
	bound, reserved := w.calls().bound(forge.NodeName, machineA), w.calls().reserve(forge.NodeName, machineA)
	again := func(from *calls, node, machine, expect string, retry bool, change func(*vector.Operation)) *calls {
		c := &calls{now: from.now, ops: slices.Clone(from.ops)}
		o := c.claim(node, machine)
		if change != nil {
			change(&o)
		}
		return c.refused(o, expect, retry)
	}
	otherUID := func(o *vector.Operation) { o.MachineUID = "uid-of-a-later-machine" }
	otherID := func(o *vector.Operation) { o.ProviderID = "test://elsewhere" }
	return []registryCase{
		{"second-machine-for-a-name", "Another machine claims a name that is bound.", again(bound, forge.NodeName, machineB, "registry-name", false, nil)},
		{"second-name-for-a-machine", "A machine that is bound claims a second name.", again(bound, forge.OtherNode, machineA, "registry-machine", false, nil)},
		{"takeover-of-a-name", "Another machine claims a name that is reserved, before the deadline.", again(reserved, forge.NodeName, machineB, "registry-reserved", true, nil)},
		{"takeover-of-a-machine", "A machine that is reserved for one name claims another, before the deadline.",
			again(reserved, forge.OtherNode, machineA, "registry-reserved", true, nil)},
		{"other-machine-uid", "The pair comes back with the UID of another Machine object.", again(bound, forge.NodeName, machineA, "registry-machine-uid", false, otherUID)},
		{"other-machine-uid-while-reserved", "The pair reserves again with the UID of another Machine object.", again(reserved, forge.NodeName, machineA, "registry-machine-uid", false, otherUID)},
		{"no-machine-uid", "The pair comes back without a Machine's UID.", again(bound, forge.NodeName, machineA, "registry-machine-uid", false, func(o *vector.Operation) { o.MachineUID = "" })},
		{"other-provider-id", "The pair comes back with another provider ID.", again(bound, forge.NodeName, machineA, "registry-provider-id", false, otherID)},
		{"provider-id-gone", "The pair comes back without its provider ID.", again(bound, forge.NodeName, machineA, "registry-provider-id", false, func(o *vector.Operation) { o.ProviderID = "" })},
		{"swapped-names", "Two bound machines claim each other's name.",
			again(w.calls().bound(forge.NodeName, machineA).bound(forge.OtherNode, machineB), forge.OtherNode, machineA, "registry-name", false, nil)},
	}
}

// registryTimes are claims that come too early or too late.
func (w *world) registryTimes() []registryCase {
	early := w.calls().reserve(forge.NodeName, machineA).later(time.Minute - time.Second)
	late := w.calls().reserve(forge.NodeName, machineA).later(time.Minute)
	taken := w.calls().reserve(forge.NodeName, machineA).later(time.Minute).reserve(forge.NodeName, machineB)
	resting := w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1).later(time.Hour)
	bind := vector.Operation{Op: "bind", Seen: machineA}
	return []registryCase{
		{"takeover-a-second-early", "Another machine claims a reserved name a second before the deadline.",
			early.refused(early.claim(forge.NodeName, machineB), "registry-reserved", true)},
		{"bind-at-the-deadline", "A reservation is bound at its deadline, when it is over.", late.refused(bind, "registry-conflict", true)},
		{"bind-after-a-takeover", "A reservation is bound after it ended and another machine has reserved the name.", taken.refused(bind, "registry-conflict", true)},
		{"resting-name", "Another machine claims a released name in the last second of its last certificate.",
			resting.refused(resting.claim(forge.NodeName, machineB), "registry-resting", false)},
		{"resting-name-of-the-same-machine", "The same machine claims a name that it was released from, and that rests.",
			func() *calls {
				c := w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1)
				return c.refused(c.claim(forge.NodeName, machineA), "registry-resting", false)
			}()},
	}
}

// registryChanged are calls by a caller whose record is not the one that is stored.
func (w *world) registryChanged() []registryCase {
	// The caller keeps the record of the reservation, and the pair reserves again.
	stale := w.calls().reserve(forge.NodeName, machineA)
	o := stale.claim(forge.NodeName, machineA)
	o.Found = &vector.RegistryFound{State: "reserved"}
	stale.later(time.Second).add(o)
	reserved := func() *calls { return w.calls().reserve(forge.NodeName, machineA) }
	two := w.calls().bound(forge.NodeName, machineA).bound(forge.OtherNode, machineB)
	raced := w.calls().bound(forge.NodeName, machineA)
	raced.add(vector.Operation{Op: "raise", Seen: machineA, LastEnd: w.Now.Add(2 * time.Hour), Found: &vector.RegistryFound{State: "bound"}})
	released := w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1)
	return []registryCase{
		{"bind-of-an-older-version", "A reservation is bound by a caller who has not seen that it was made anew.",
			stale.refused(vector.Operation{Op: "bind", Seen: machineA}, "registry-conflict", true)},
		{"raise-of-a-reservation", "The last end is raised of a record that is not bound.",
			reserved().refused(vector.Operation{Op: "raise", Seen: machineA, LastEnd: w.Now.Add(time.Hour)}, "registry-conflict", true)},
		{"raise-of-an-older-version", "The last end is raised by a caller who has not seen the last raise.",
			raced.refused(vector.Operation{Op: "raise", Seen: machineA, LastEnd: w.Now.Add(3 * time.Hour)}, "registry-conflict", true)},
		{"raise-after-release", "The last end is raised of a machine that is gone.",
			released.refused(vector.Operation{Op: "raise", Seen: machineA, LastEnd: w.Now.Add(3 * time.Hour)}, "registry-conflict", true)},
		{"rebind-of-a-reservation", "A record that is not bound is given another machine.",
			reserved().refused(vector.Operation{Op: "rebind", Seen: machineA, Machine: machineB}, "registry-conflict", true)},
		{"rebind-to-a-machine-with-a-name", "A replaced board is to be a machine that is bound under another name.",
			two.refused(vector.Operation{Op: "rebind", Seen: machineA, Machine: machineB}, "registry-machine", false)},
		{"rebound-machine-comes-back", "The former machine claims the name after the board was replaced.", func() *calls {
			c := w.calls().bound(forge.NodeName, machineA)
			c.add(vector.Operation{Op: "rebind", Seen: machineA, Machine: machineB, Found: &vector.RegistryFound{State: "bound", Machine: machineB}})
			return c.refused(c.claim(forge.NodeName, machineA), "registry-name", false)
		}()},
	}
}

// registryAccepted are joins that must succeed.
func (w *world) registryAccepted() []registryCase {
	again := w.calls().reserve(forge.NodeName, machineA).later(30*time.Second).reserve(forge.NodeName, machineA)
	back := w.calls().bound(forge.NodeName, machineA)
	o := back.claim(forge.NodeName, machineA)
	o.Found = &vector.RegistryFound{State: "bound", LastEnd: w.Now.Add(time.Hour)}
	filled := w.calls()
	first := filled.claim(forge.NodeName, machineA)
	first.ProviderID, first.Keep, first.Found = "", machineA, &vector.RegistryFound{State: "reserved"}
	second := filled.claim(forge.NodeName, machineA)
	second.Found = &vector.RegistryFound{State: "bound", ProviderID: idOf1}
	return []registryCase{
		{"join", "A machine reserves a name, binds it, and is found under it.",
			w.calls().lookup(forge.NodeName, "").bound(forge.NodeName, machineA).lookup(forge.NodeName, "bound").lookupMachine(machineA, forge.NodeName)},
		{"reserved-again-by-the-pair", "The pair reserves again at once, after a crash, and has the new deadline.",
			again.later(45*time.Second).bind(machineA).lookup(forge.NodeName, "bound")},
		{"bound-pair-comes-back", "A bound pair reserves again and stays bound.", back.add(o).lookup(forge.NodeName, "bound")},
		{"takeover-at-the-deadline", "Another machine reserves the name at the deadline, when the reservation is over.",
			w.calls().reserve(forge.NodeName, machineA).later(time.Minute).lookup(forge.NodeName, "").reserve(forge.NodeName, machineB).bind(machineB).lookupMachine(machineA, "")},
		{"provider-id-filled-in", "A provider ID that was not known at the first join is filled in.", filled.add(first).bind(machineA).add(second)},
	}
}

// registryLives are records that end or change.
func (w *world) registryLives() []registryCase {
	rebound := w.calls().bound(forge.NodeName, machineA).
		add(vector.Operation{Op: "rebind", Seen: machineA, Machine: machineB, Found: &vector.RegistryFound{State: "bound", NodeName: forge.NodeName, Machine: machineB}}).
		lookupMachine(machineA, "").lookupMachine(machineB, forge.NodeName).reserve(forge.OtherNode, machineA)
	lower := w.calls().bound(forge.NodeName, machineA)
	lower.add(vector.Operation{Op: "raise", Seen: machineA, LastEnd: w.Now.Add(time.Minute),
		Found: &vector.RegistryFound{State: "bound", LastEnd: w.Now.Add(time.Hour)}})
	return []registryCase{
		{"released-machine-is-free", "A released machine takes another name at once, and its former name rests.",
			w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1).lookup(forge.NodeName, "resting").lookupMachine(machineA, "").bound(forge.OtherNode, machineA)},
		{"name-rested", "A released name is free the second after its last certificate ended.",
			w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1).later(time.Hour+time.Second).lookup(forge.NodeName, "").bound(forge.NodeName, machineB)},
		{"released-without-a-certificate", "A bound name under which nothing was issued does not rest.",
			w.calls().reserve(forge.NodeName, machineA).bind(machineA).release(forge.NodeName, uidOf1).lookup(forge.NodeName, "")},
		{"released-while-reserved", "A reservation is gone with its Machine.", w.calls().reserve(forge.NodeName, machineA).release(forge.NodeName, uidOf1).reserve(forge.NodeName, machineB)},
		{"release-of-another-machine-object", "The Machine object of another UID is gone, which leaves the record alone.",
			w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf2).lookup(forge.NodeName, "bound")},
		{"rebound", "A bound record is given another machine, and the former one is free.", rebound},
		{"raise-to-an-earlier-end", "An earlier last end than the recorded one changes nothing.", lower},
	}
}
