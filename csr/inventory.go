package csr

import (
	"net/netip"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Question asks an inventory which machine is to be this node.
type Question struct {
	// ClusterIDs are the names of the cluster ([Policy.ClusterIDs]), so that one inventory
	// can serve several clusters.
	ClusterIDs []string
	// NodeName is the node that the certificate is for.
	NodeName string
	// Request is the whole request. Its labels and annotations are the client's.
	//
	// Not: a machine that a label of the request names, or SANs from Node.status. A client
	// writes both.
	Request *Request
}

// Machine is the entry of the operator's own inventory for the machine that is to be a node:
// a Cluster API Machine, an entry in a list, a row in a database. It must come neither from
// the Node object, which the kubelet writes itself, nor from the request.
type Machine struct {
	// Name is the machine's name in the inventory, for people and logs.
	Name string
	// UID distinguishes the machine from a later one with the same name; "" if the inventory
	// has none. Policies do not read it; it is recorded with every certificate that is
	// issued ([IssuedRecord]) and compared by [Checked.Inherit].
	UID string
	// Identity is the canonical identity that is registered for the machine, such as
	// "ek:sha256:<hex>"; "" if the inventory does not keep it. [Checked.Vouch] holds every
	// provider's result to it, and [Checked.Inherit] compares it.
	Identity string
	// Provider is the kind of evidence by which the machine is known, such as "tpm"; ""
	// leaves it open to all but the insecure provider, whose machines have "insecure" here. By
	// any other it is refused, whatever identity it shows.
	Provider string
	// NodeUID is the UID that the API server gave the Node object named NodeName; "" if
	// there is no such Node, or if the inventory does not follow Nodes. It is recorded and
	// compared as UID is. It is the only thing here that comes from the Node: a kubelet
	// cannot write it.
	NodeUID string
	// NodeName is the one node that the machine may be. "" leaves it open: then the machine that the
	// inventory returns for a node name applies to that node name.
	NodeName string
	// ProviderID is the machine's provider ID; "" if it is not known yet, and "none" if the machine
	// has none and never will. A request that claims another one is refused.
	ProviderID string
	// DNSNames are the names that the machine may serve under, in upper or lower case and
	// without a trailing dot: requests and certificates have none, so "node-1.local."
	// matches no name. If an inventory writes trailing dots, they must be removed before the
	// names come here. The node's name is among them only if it is listed.
	DNSNames []string
	// IPAddresses are the addresses that the machine may serve under. IPv4 addresses may be
	// mapped into IPv6. Addresses that [Policy] reserves are refused even if they are
	// listed.
	IPAddresses []netip.Addr
	// BootstrapReady says that the machine has its data for joining
	// (the Cluster API's condition BootstrapConfigReady). While it is not ready, requests with
	// a bootstrap token are refused, and the node files again; those with a certificate do not
	// depend on it.
	BootstrapReady bool
}

// KnownProviderID returns ProviderID, or "" if the machine has none and never will.
func (m *Machine) KnownProviderID() string { return names.KnownProviderID(m.ProviderID) }

// CheckMachine checks a machine when an inventory is read. It refuses, with [refusal.CheckConfig], a
// DNS name or an address that this policy refuses in every request, and a node name or provider ID that is
// not valid. Of the policy it reads ReservedIPs and ReservedDNSNames.
func (p *Policy) CheckMachine(m *Machine) error {
	if p == nil || m == nil {
		return refusal.Config("Policy and Machine", "", "both")
	}
	if !names.ValidNode(m.NodeName) {
		return refusal.Config("nodeName", refusal.Quote(m.NodeName), names.WantNode(m.NodeName))
	}
	if id := m.KnownProviderID(); id != "" && oid.CheckProviderID(id) != nil {
		return refusal.Config("providerID", refusal.Quote(id), "<scheme>://<the platform's name of the machine>, or none")
	}
	return p.reserved().Check(m.DNSNames, m.IPAddresses)
}
