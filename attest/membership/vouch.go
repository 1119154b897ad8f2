package membership

import (
	"cmp"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// inventoryOf is what the policy found for the node's name.
func inventoryOf(r *attest.Result) *csr.Machine {
	if checked := r.Checked(); checked != nil && checked.Machine() != nil {
		return checked.Machine()
	}
	return &csr.Machine{}
}

// clustersOf are the names of the cluster that the machine is to join.
func clustersOf(r *attest.Result) []string {
	if checked := r.Checked(); checked != nil {
		return checked.ClusterIDs()
	}
	return []string{r.ClusterID}
}

// builtInLifetimeOf is the lifetime that one of Kubernetes' own signers gives the certificate; 0
// under other signers.
func builtInLifetimeOf(r *attest.Result) time.Duration {
	if checked := r.Checked(); checked != nil {
		return checked.BuiltInLifetime()
	}
	return 0
}

func requesterOf(r *attest.Result) csr.RequesterClass {
	if r.Checked() == nil {
		return 0
	}
	return r.Checked().Requester().Class
}

// vouch admits the machine as a node and vouches for what the inventory has, and for this provider ID; if
// it is empty, for the one that evidence and inventory have. The join refuses one that they contradict.
func vouch(r *attest.Result, nodeName, providerID string) *attest.Authorization {
	m := inventoryOf(r)
	a := r.Admit(nodeName)
	a.ProviderID, a.DNSNames, a.IPAddresses = cmp.Or(providerID, r.Granted.ProviderID), m.DNSNames, m.IPAddresses
	return a
}
