package settings

import (
	"strings"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// An entry is a machine of an inventory, and the name of the part that has it.
type entry struct {
	part    string
	machine *csr.Machine
}

// unique are the values of which an inventory has each once: node names, UIDs, identities and provider IDs.
type unique [4]map[string]entry

// newUnique returns an empty one for about n machines.
func newUnique(n int) *unique {
	u := new(unique)
	for i := range u {
		u[i] = make(map[string]entry, n)
	}
	return u
}

// uniqueFields are the names of those values.
var uniqueFields = [len(unique{})]string{"node", "UID", "identity", "provider ID"}

// add adds an entry. It calls twice for each value that an entry before has, with that entry.
func (u *unique) add(e entry, twice func(first entry, what string)) {
	m := e.machine
	for i, value := range [...]string{m.NodeName, m.UID, m.Identity, oid.CanonicalProviderID(m.KnownProviderID())} {
		if value == "" {
			continue
		}
		if first, ok := u[i][value]; ok {
			twice(first, refusal.Text(uniqueFields[i]+" "+value))
			continue
		}
		u[i][value] = e
	}
}

// served returns a DNS name of a machine that is the name of another node, with that node's entry.
func (u *unique) served(m *csr.Machine) (string, entry) {
	for _, name := range m.DNSNames {
		if of, ok := u[0][strings.ToLower(name)]; ok && of.machine.NodeName != m.NodeName {
			return name, of
		}
	}
	return "", entry{}
}
