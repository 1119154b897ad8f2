package kubectl

import (
	"strings"
	"testing"
)

// TestExistingUnlisted: a request that the node has filed shows no more than its certificate, which the holder of a
// bootstrap token may have: the operator is told, and a script has to name the Node, unless the inventory identifies the machine.
func TestExistingUnlisted(t *testing.T) {
	for inventory, warned := range map[string]bool{
		"machines: [{nodeName: node-1}, {nodeName: node-2, identity: 'strange:22'}]\n":                        true,
		"machines: [{nodeName: node-1, identity: 'strange:1'}, {nodeName: node-2, identity: 'strange:22'}]\n": false,
	} {
		for names, approves := range map[string]bool{"": !warned, "node-1 node-2": true} {
			o := operates(t, inventory, asking(t, "a", "node-1", honest), asking(t, "b", "node-2", "strange:22"), plainNode("node-1"), plainNode("node-2"))
			o.yes = true
			err := o.approveExisting(t.Context(), names)
			if approves != (err == nil) || !approves && !strings.Contains(err.Error(), "only for Nodes that are named") {
				t.Errorf("%s%q: %v", inventory, names, err)
			}
			if said := o.err.String(); strings.Contains(said, "warning: the inventory has no identity for 1 of these Nodes") != warned || !warned && said != "" {
				t.Errorf("%s%q: %s", inventory, names, said)
			}
		}
	}
}
