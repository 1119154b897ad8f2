package main

import (
	"time"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/forge"
	"github.com/nodeattest/nodeattest/internal/vector"
)

// firstUse are whole answers and hellos that meet trust on first use: what the registry
// has, or what there is beside it, decides.
func (w *world) firstUse() {
	day := int64(24 * time.Hour / time.Second)
	machine, other := forge.Identity("machine-1"), forge.Identity("machine-2")
	// The inventory has no UIDs in the common environment, and the good node's ID.
	claim := func(c *calls, node, machine string) *calls {
		o := vector.Operation{Op: "reserve", NodeName: node, Machine: machine, Deadline: c.now.Add(time.Minute), Keep: machine,
			Found: &vector.RegistryFound{State: "reserved"}}
		if node == forge.NodeName {
			o.ProviderID = providerID
		}
		return c.add(o)
	}
	bound := func(node, machine string) *calls {
		c := &calls{now: w.Now.Add(-time.Hour)}
		return claim(c, node, machine).bind(machine).raise(machine, 12*time.Hour)
	}
	reserved := func(node, machine string) *calls {
		return claim(&calls{now: w.Now.Add(-30 * time.Second)}, node, machine)
	}
	use := func(c *calls, nodes ...string) *vector.FirstUse {
		f := &vector.FirstUse{MaxLifetimeSeconds: day, Nodes: nodes}
		if c != nil {
			f.History = c.ops
		}
		return f
	}
	newcomer := w.Forge(w.AKP256, forge.Join{}).Answer()
	rename := w.inventoryWith(func(m *vector.Machine) { m.UID = "uid-of-a-later-machine" })
	otherID := bound(forge.NodeName, machine)
	otherID.ops[0].ProviderID = "sim://vectors/elsewhere"
	copied := claim(&calls{now: w.Now.Add(-time.Hour)}, forge.OtherNode, other).bind(other)
	copied.ops[0].MachineUID = "uid-of-a-later-machine"
	renewal := w.Forge(w.AKP256, forge.Join{Username: "system:node:" + forge.NodeName, Groups: []string{"system:nodes", "system:authenticated"}}).Answer()

	for _, a := range []struct {
		name, what, cause string
		object            *csr.Request
		use               *vector.FirstUse
		machines          []vector.Machine
		retry             bool
	}{
		{"first-use-node-without-record", "A machine that nobody knows asks for the name of a Node that has no record.", "registry-node-without-record", newcomer, use(nil, forge.NodeName), nil, false},
		{"first-use-second-machine", "Another machine has the name.", "registry-name", newcomer, use(bound(forge.NodeName, other), forge.NodeName), nil, false},
		{"first-use-second-name", "The machine has another name.", "registry-machine", newcomer, use(bound(forge.OtherNode, machine), forge.OtherNode), nil, false},
		{"first-use-resting-name", "The name rests after another machine that is gone.", "registry-resting", newcomer, use(bound(forge.NodeName, other).release(forge.NodeName, "")), nil, false},
		{"first-use-other-machine-uid", "The inventory has another Machine object for the name than the record.", "registry-machine-uid", newcomer, use(bound(forge.NodeName, machine), forge.NodeName), rename, false},
		{"first-use-second-name-for-a-machine-uid", "Another machine came under another name with the UID of this Machine.", "registry-machine-uid", newcomer, use(copied), rename, false},
		{"first-use-other-provider-id", "The record has another provider ID than the inventory.", "registry-provider-id", newcomer, use(otherID, forge.NodeName), nil, false},
		{"first-use-renewal-without-record", "A node without a record renews its certificate.", "registry-requester", renewal, use(nil, forge.NodeName), nil, false},
		{"first-use-renewal-of-a-reservation", "A node whose record was never bound renews its certificate.", "registry-requester", renewal, use(reserved(forge.NodeName, machine), forge.NodeName), nil, false},
		{"first-use-reserved-name", "Another machine has reserved the name, and its deadline is not over.", "", newcomer, use(reserved(forge.NodeName, other)), nil, true},
		{"first-use-reserved-machine", "The machine has reserved another name, and the deadline is not over.", "", newcomer, use(reserved(forge.OtherNode, machine)), nil, true},
	} {
		v := &vector.Vector{Name: a.name, Class: "binding", Level: vector.LevelVerify, Description: a.what, Expect: "not-a-member", Cause: a.cause,
			Package: vector.PackageAttest, Retry: a.retry, Object: a.object, Environment: &vector.Environment{FirstUse: a.use, Machines: a.machines}}
		if a.retry {
			v.Expect = "registry-reserved"
		}
		w.add(v)
	}
	w.add(&vector.Vector{Name: "first-use-on-the-other-road", Class: "binding", Level: vector.LevelVerify, Expect: "not-a-member", Cause: "registry-scope",
		Package: vector.PackageAttest, Description: "The registry holds EKs, and the machine is known by its AK's certificate: it could come twice.",
		Object: newcomer, Environment: &vector.Environment{FirstUse: &vector.FirstUse{EKAlgorithm: "P-256", MaxLifetimeSeconds: day}}})
	w.add(&vector.Vector{Name: "first-use-node-without-record-in-hello", Class: "binding", Level: vector.LevelChallenge, Expect: "not-a-member",
		Cause: "registry-node-without-record", Package: vector.PackageAttest, Object: w.goodHello,
		Description: "A machine that nobody knows asks for the name of a Node that has no record.", Environment: &vector.Environment{FirstUse: use(nil, forge.NodeName)}})

	good := func(name, what string, object *csr.Request, f *vector.FirstUse) {
		w.addGood(name, what, object, &vector.Environment{FirstUse: f}, resultOf(true))
	}
	good("first-use-newcomer", "Nobody has the name, and nobody has the machine.", newcomer, use(nil, forge.OtherNode))
	good("first-use-known-machine", "The machine is bound to the name, and comes back to be imaged anew.", newcomer, use(bound(forge.NodeName, machine), forge.NodeName))
	good("first-use-after-a-crash", "The pair reserved the name before, and nobody bound it.", newcomer, use(reserved(forge.NodeName, machine)))
	good("first-use-renewal", "A bound node renews its certificate.", renewal, use(bound(forge.NodeName, machine), forge.NodeName))
}

// inventoryWith is the common inventory with a change of the good node's machine.
func (w *world) inventoryWith(how func(*vector.Machine)) []vector.Machine {
	machines := append([]vector.Machine{}, w.set.Environment.Machines...)
	how(&machines[0])
	return machines
}
