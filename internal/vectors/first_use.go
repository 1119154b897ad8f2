package main

import (
	"time"

	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

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
