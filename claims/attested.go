package claims

import (
	"context"
	"strings"
)

// AttestedNode is what is known of the machine at the other end of a connection: which node
// it is, and what its proof left for others to use. Fill it from a verified certificate
// ([AttestedNodeFromCertificate]), from the record of an issued certificate
// ([AttestedNodeFromRecord]), or from the result of a verification by package attest. The
// zero value is no node and refused.
type AttestedNode struct {
	// Name is the node's name. It is required.
	Name string
	// UID is the UID of the Node object that the certificate was issued for, where its
	// record has one; else "". Never that of the Node that has the name now.
	UID string
	// ProviderID is the provider ID that was vouched for: that of the certificate's
	// extension, or of attest's Authorization. "" where there was none: kube-controller-
	// manager's built-in signer drops the extension. Never take what a node claims.
	ProviderID string
	// Machine is the canonical identity of the machine that was verified, such as
	// "ek:sha256:" and a digest: the text of an attest.Identity, as csr.IssuedRecord has
	// it too; "" where it is not known.
	Machine string
	// MachineUID is the UID of the object that stood for the machine when it was verified,
	// such as the Cluster API's Machine; "" where it is not known.
	MachineUID string
}

// RegisteredMachine is the machine that is registered for a node's name.
type RegisteredMachine struct {
	// Identity is the machine's canonical identity, spelled as in AttestedNode.Machine;
	// "" where the registry does not know it.
	Identity string
	// ProviderID is the machine's provider ID, spelled as in the Node's spec.providerID;
	// "" where the registry does not know it.
	ProviderID string
	// UID is the UID of the object that stands for the machine, spelled as in
	// AttestedNode.MachineUID; "" where the registry does not know it.
	UID string
}

// Machines says which machine is registered for a node's name: the registry of trust on
// first use, the Cluster API's Machines, an inventory. A name for which none is
// registered for good (a reservation is not enough) is an error that errors.Is finds
// [ErrNotFound] in; every other error says that the question could not be answered.
// Implementations are safe for concurrent use.
type Machines interface {
	// Machine returns the machine that may be the node of that name.
	Machine(ctx context.Context, nodeName string) (*RegisteredMachine, error)
}

// MachinesFunc is a function that is a [Machines].
type MachinesFunc func(ctx context.Context, nodeName string) (*RegisteredMachine, error)

// Machine calls the function.
func (f MachinesFunc) Machine(ctx context.Context, nodeName string) (*RegisteredMachine, error) {
	return f(ctx, nodeName)
}

// Facts is a set of agreements between a token, an attested node, its Node object and the
// registry.
type Facts uint

// The facts. Each is an agreement of two sources that both know the value.
const (
	// FactNodeName: the token names the attested node. Always required.
	FactNodeName Facts = 1 << iota
	// FactNodeUID: the token names the Node object that lives now, by its UID. Always
	// required.
	FactNodeUID
	// FactAttestedUID: so did the attestation. It is a fact of the presenter.
	FactAttestedUID
	// FactCertificateProviderID: the Node's provider ID is the one that was vouched for
	// when the machine was attested. It is a fact of the presenter.
	FactCertificateProviderID
	// FactRegisteredProviderID: the Node's provider ID is that of the registered machine.
	// It is the registry's word.
	FactRegisteredProviderID
	// FactRegisteredMachine: the machine that was attested is the registered one. It is a
	// fact of the presenter, and the registry's word.
	FactRegisteredMachine
	// FactRegisteredMachineUID: the object that stood for the machine when it was attested
	// is the registered one. It is a fact of the presenter, and the registry's word.
	FactRegisteredMachineUID

	endOfFacts
)

const (
	// presenterFacts tie the machine that presents a token to the node by more than the
	// name in its certificate.
	presenterFacts = FactAttestedUID | FactCertificateProviderID | FactRegisteredMachine | FactRegisteredMachineUID
	// registryFacts are what is known from elsewhere than the Node object, which the node
	// itself may write.
	registryFacts = FactRegisteredProviderID | FactRegisteredMachine | FactRegisteredMachineUID
)

// factNames are the names of the facts, lowest bit first.
var factNames = [...]string{
	"node-name", "node-uid", "attested-uid",
	"certificate-provider-id", "registered-provider-id", "registered-machine", "registered-machine-uid",
}

// Has reports whether all the given facts are in the set.
func (f Facts) Has(all Facts) bool { return f&all == all }

// String lists the facts by name, joined by commas; "none" for the empty set.
func (f Facts) String() string {
	var names []string
	for i, name := range factNames {
		if f.Has(1 << i) {
			names = append(names, name)
		}
	}
	if f >= endOfFacts {
		names = append(names, "unknown")
	}
	if names == nil {
		return "none"
	}
	return strings.Join(names, ",")
}

// NodeFacts is why a token counts as issued to a workload on the attested machine.
type NodeFacts struct {
	// Facts are the agreements that it stands on.
	Facts Facts
	// Node is the Node object.
	Node Node
	// Machine is the registered machine.
	Machine RegisteredMachine
}
