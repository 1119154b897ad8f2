package main

import (
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// boundUID is a pair that has joined with this Machine UID.
func (c *calls) boundUID(node, machine, uid string) *calls {
	o := c.claim(node, machine)
	o.MachineUID, o.Keep, o.Found = uid, machine, &vector.RegistryFound{State: "reserved", NodeName: node, Machine: machine, Deadline: o.Deadline}
	return c.add(o).bind(machine).raise(machine, time.Hour)
}

// lookupUID finds a record by its Machine UID, or none.
func (c *calls) lookupUID(uid, node string) *calls {
	o := vector.Operation{Op: "lookupMachineUID", MachineUID: uid}
	if node != "" {
		o.Found = &vector.RegistryFound{State: "bound", NodeName: node}
	}
	return c.add(o)
}

// adopt takes another Machine UID.
func adopt(machine, uid string) vector.Operation {
	return vector.Operation{Op: "adopt", Seen: machine, MachineUID: uid}
}

// registryUIDs are claims to a Machine UID that has a record under another name.
func (w *world) registryUIDs() []registryCase {
	second := func(from *calls, expect string, retry bool) *calls {
		c := &calls{now: from.now, ops: slices.Clone(from.ops)}
		o := c.claim(forge.OtherNode, machineB)
		o.MachineUID = uidOf1
		return c.refused(o, expect, retry)
	}
	two := w.calls().bound(forge.NodeName, machineA).boundUID(forge.OtherNode, machineB, uidOf2)
	raced := w.calls().bound(forge.NodeName, machineA)
	raced.add(vector.Operation{Op: "raise", Seen: machineA, LastEnd: w.Now.Add(2 * time.Hour), Found: &vector.RegistryFound{State: "bound"}})
	return []registryCase{
		{"second-name-for-a-machine-uid", "Another machine claims another name with the Machine UID of a bound record: it has a copy of that Machine's bootstrap data.",
			second(w.calls().bound(forge.NodeName, machineA), "registry-machine-uid", false)},
		{"takeover-of-a-machine-uid", "Another machine claims another name with the Machine UID of a reservation, before the deadline.",
			second(w.calls().reserve(forge.NodeName, machineA), "registry-reserved", true)},
		{"machine-uid-of-a-resting-name", "Another machine claims another name with the UID of a Machine that is gone, while its name rests.",
			second(w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1), "registry-machine-uid", false)},
		{"adopt-of-the-uid-of-another-name", "A record is to take the UID of a Machine that has another name.",
			two.refused(adopt(machineA, uidOf2), "registry-machine-uid", false)},
		{"adopt-of-an-older-version", "A record is to take another UID, by a caller who has not seen its last end raised.",
			raced.refused(adopt(machineA, "uid-after-the-move"), "registry-conflict", true)},
	}
}

// registryAdopted are records that are found by their Machine UID, before and after it
// changes.
func (w *world) registryAdopted() []registryCase {
	moved := w.calls().bound(forge.NodeName, machineA).lookupUID(uidOf1, forge.NodeName)
	o := adopt(machineA, "uid-after-the-move")
	o.Found = &vector.RegistryFound{State: "bound", NodeName: forge.NodeName, Machine: machineA, LastEnd: moved.now.Add(time.Hour)}
	moved.add(o).lookupUID(uidOf1, "").lookupUID("uid-after-the-move", forge.NodeName).release(forge.NodeName, uidOf1).lookup(forge.NodeName, "bound")
	return []registryCase{
		{"adopted", "A record takes the UID of the Machine object that the inventory was moved to; the end of the former one leaves it alone.", moved},
		{"machine-uid-after-the-rest", "A Machine UID is free when its name has rested.",
			w.calls().bound(forge.NodeName, machineA).release(forge.NodeName, uidOf1).later(time.Hour+time.Second).lookupUID(uidOf1, "").boundUID(forge.OtherNode, machineB, uidOf1)},
	}
}
