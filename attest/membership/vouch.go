package membership

import (
	"cmp"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// inventoryOf returns the inventory's machine for the node, or an empty one.
func inventoryOf(r *attest.Result) *csr.Machine {
	if checked := r.Checked(); checked != nil && checked.Machine() != nil {
		return checked.Machine()
	}
	return &csr.Machine{}
}

// clustersOf returns the names of the cluster that the machine is to join.
func clustersOf(r *attest.Result) []string {
	if checked := r.Checked(); checked != nil {
		return checked.ClusterIDs()
	}
	return []string{r.ClusterID}
}

// builtInLifetimeOf returns the certificate's lifetime by one of Kubernetes' own signers; 0 for other
// signers.
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

// vouch admits the machine as a node, with the inventory's SANs and this provider ID; "" takes that of
// inventory or evidence. The Verifier refuses one that they contradict.
func vouch(r *attest.Result, nodeName, providerID string) *attest.Authorization {
	m := inventoryOf(r)
	a := r.Admit(nodeName)
	a.ProviderID, a.DNSNames, a.IPAddresses = cmp.Or(providerID, r.Granted.ProviderID), m.DNSNames, m.IPAddresses
	return a
}
