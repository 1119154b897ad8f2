package membership

import (
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/providerid"
	"github.com/nodeattest/nodeattest/internal/typednil"
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

// providerIDOf is the provider ID that the inventory has for the node's name or, if it has none, the
// one that the machine's evidence states (attest.Result.Details). It is "" if neither has one: what the
// node says of itself does not count.
func providerIDOf(r *attest.Result) string {
	if id := inventoryOf(r).ProviderID; id != "" {
		return id
	}
	if d, ok := r.Details.(interface{ ProviderID() string }); ok && !typednil.Is(d) {
		return d.ProviderID()
	}
	return ""
}

// vouch admits the machine as a node and vouches for what the inventory has, with this provider ID; if it is empty, that
// of providerIDOf is used.
func vouch(r *attest.Result, nodeName, providerID string) (*attest.Authorization, error) {
	m := inventoryOf(r)
	switch {
	case providerID == "":
		providerID = providerIDOf(r)
	case m.ProviderID != "" && !providerid.Equal(m.ProviderID, providerID):
		got, want := providerid.Apart(providerID, m.ProviderID)
		return nil, refuse(attest.CheckMembership, "a list that has the machine of node "+nodeName+" as "+got, "as the inventory has it, "+want)
	}
	a := r.Admit(nodeName)
	a.ProviderID, a.DNSNames, a.IPAddresses = providerID, m.DNSNames, m.IPAddresses
	return a, nil
}
