package membership

import (
	"cmp"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// checkedOf returns the request that passed the policy, or an empty one.
func checkedOf(r *attest.Result) *csr.Checked { return cmp.Or(r.Checked(), &csr.Checked{}) }

// inventoryOf returns the inventory's machine for the node, or an empty one.
func inventoryOf(r *attest.Result) *csr.Machine {
	return cmp.Or(checkedOf(r).Machine(), &csr.Machine{})
}

// clustersOf returns the names of the cluster that the machine is to join.
func clustersOf(r *attest.Result) []string {
	if checked := r.Checked(); checked != nil {
		return checked.ClusterIDs()
	}
	return []string{r.ClusterID}
}

// vouch admits the machine as a node, with the inventory's SANs and this provider ID; "" takes that of
// inventory or evidence. The Verifier refuses one that they contradict.
func vouch(r *attest.Result, nodeName, providerID string) *attest.Authorization {
	m := inventoryOf(r)
	a := r.Admit(attest.KnownNode(nodeName))
	a.ProviderID, a.DNSNames, a.IPAddresses = cmp.Or(providerID, r.Granted.ProviderID), m.DNSNames, m.IPAddresses
	return a
}
