package kubectl

import (
	"strings"
	"testing"
)

// TestExistingUnlisted: a request that the node has filed shows no more than its certificate, which the holder of a
// bootstrap token may have: the operator is told, and a script too, unless the inventory identifies the machine.
func TestExistingUnlisted(t *testing.T) {
	for inventory, warned := range map[string]bool{
		"machines: [{nodeName: node-1}, {nodeName: node-2, identity: 'strange:22'}]\n":                        true,
		"machines: [{nodeName: node-1, identity: 'strange:1'}, {nodeName: node-2, identity: 'strange:22'}]\n": false,
	} {
		o := operates(t, inventory, asking(t, "a", "node-1", honest), asking(t, "b", "node-2", "strange:22"), plainNode("node-1"), plainNode("node-2"))
		o.yes = true
		err := o.approveExisting(t.Context(), "")
		if said := o.err.String(); err != nil || strings.Contains(said, "warning: the inventory has no identity for 1 of these Nodes") != warned || !warned && said != "" {
			t.Errorf("%s%v\n%s", inventory, err, said)
		}
	}
}
