package claims

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/claims/internal/alive"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// The ways in which a token and an attested node can disagree. Each is refused by its own
// check; if three sources state a value, the check says which one differs from the others.
const (
	// checkNodeClaim: the token names no node.
	checkNodeClaim Check = "node-claim"
	// checkNodeClaimUID: the token's node has no UID, or not that of the Node that was
	// attested and currently exists.
	checkNodeClaimUID Check = "node-claim-uid"
	// checkNodeName: the token names a node other than the attested one. This is what
	// refuses a token that is replayed from another node.
	checkNodeName Check = "node-name"
	// checkNodeGone: there is no Node with that name.
	checkNodeGone Check = "node-gone"
	// checkNodeDeleted: the Node is being deleted.
	checkNodeDeleted Check = "node-deleted"
	// checkNodeUID: the current Node is not the one that the token names: it was deleted
	// and recreated.
	checkNodeUID Check = "node-uid"
	// checkAttestedUID: the machine was attested for another Node object with that name.
	checkAttestedUID Check = "attested-uid"
	// checkMachineUnknown: no machine is registered for the node's name.
	checkMachineUnknown Check = "machine-unregistered"
	// checkRegisteredMachine: the machine that is registered for the node's name is not the
	// one that was attested.
	checkRegisteredMachine Check = "registered-machine"
	// checkRegisteredMachineUID: the object that represents the machine registered for the
	// node's name is not the one that represents the attested machine.
	checkRegisteredMachineUID Check = "registered-machine-uid"
	// checkNodeProviderID: the Node's provider ID is not that of certificate and registry,
	// or it has none although the certificate or the registry has one.
	checkNodeProviderID Check = "node-provider-id"
	// checkCertificateProviderID: the verified provider ID is not the Node's.
	checkCertificateProviderID Check = "certificate-provider-id"
	// checkRegisteredProviderID: the registered machine's provider ID is not the Node's.
	checkRegisteredProviderID Check = "registered-provider-id"
	// checkFacts: nothing disagrees, but too little is known.
	checkFacts Check = "facts"
	// checkUnvalidated: the result was not returned by a validator.
	checkUnvalidated Check = "unvalidated-result"
)

// NodeCheck decides whether a token was issued to a workload on the very machine that
// presents it (KEP-4193, user story 1). The zero value refuses everything.
//
// The node's name and UID in the token, the Node object and its provider ID, the provider ID that
// was verified when the machine was attested, and the machine that is registered for the name
// must all agree as far as they are known. The following are always required:
//
//   - [FactNodeName] and [FactNodeUID].
//   - A fact from the registry: [FactRegisteredProviderID], [FactRegisteredMachine] or
//     [FactRegisteredMachineUID]. Otherwise there would be only the Node object, which the
//     node itself may write.
//   - A fact about the presenter: [FactRegisteredMachine] or [FactRegisteredMachineUID] if the
//     attestation names a machine, so the registry must know that machine by one of the two; or
//     else [FactCertificateProviderID]. Otherwise only the name in its certificate, and perhaps
//     its Node, would tie it to the registered machine. The machine that was this node before
//     has that name in its certificate too, the Node may have been kept, and a machine that was
//     never attested may have the name.
type NodeCheck struct {
	// FindMachine returns the machine that is registered for a node's name, from the registry of
	// trust on first use, the Cluster API's Machines, or an inventory. For a name without a
	// permanently registered machine (a reservation is not enough), the error wraps
	// [ErrNotFound]; any other error means that the registry could not answer. It is required,
	// and must be safe for concurrent use.
	FindMachine func(ctx context.Context, nodeName string) (*RegisteredMachine, error)
	// Require is the set of facts that are required in addition.
	Require Facts
	// InsecureAllowUnattested drops the requirement of a fact about the presenter. Every
	// certificate with the node's name that the CA signed then passes, attested or not,
	// including that of the machine that had the name before.
	InsecureAllowUnattested bool
}

// Check compares a validated token with an attested node. It is meant for results of other
// validators: one with a Node in its configuration does this itself, in
// [Validator.ValidateOnNode]. Objects gets the Node; any but [LiveObjects] are accepted only
// inside a [FreshObjects]. The result must be one that a validator returned, unmodified
// ("unvalidated-result"). Every refusal is an [*Error] with its own check; if the Node or the
// registry could not be read, the error is [refusal.ErrRetry]. Without objects or FindMachine, the
// error is [refusal.CheckConfig].
func (c NodeCheck) Check(ctx context.Context, objects Objects, result *Result, node *AttestedNode, now time.Time) (*NodeFacts, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	fresh, ok := objects.(FreshObjects)
	if !ok {
		fresh = FreshObjects{From: objects, Now: func() time.Time { return now }}
	}
	if err := fresh.Check(); err != nil {
		return nil, err
	}
	if !result.validated() {
		return nil, &Error{Check: checkUnvalidated, Got: "a result that no validator returned", Want: "a validated token"}
	}
	claim, err := nodeClaim(result, node)
	if err != nil {
		return nil, err
	}
	object, err := fresh.Get(ctx, alive.Node.Plural, "", claim.Name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Check: checkNodeGone, Got: "no Node " + refusal.Text(claim.Name), Want: "the one with UID " + refusal.Text(claim.UID), Err: err}
	case object == nil:
		return nil, retry("Node "+refusal.Text(claim.Name), err)
	}
	return c.compare(ctx, claim, node, object, now)
}

// isZero reports whether the check was not configured.
func (c NodeCheck) isZero() bool {
	return c.FindMachine == nil && c.Require == 0 && !c.InsecureAllowUnattested
}

// ready returns an error if the check cannot be made as configured.
func (c NodeCheck) ready() error {
	switch {
	case c.FindMachine == nil:
		return refusal.Config("FindMachine", "", "a registry of machines")
	case c.Require >= endOfFacts:
		return refusal.Config("Require", "of unknown facts", "facts of this package")
	}
	return nil
}

// nodeClaim returns the token's node, which must have the name of the attested one.
func nodeClaim(result *Result, node *AttestedNode) (*Ref, error) {
	if node == nil {
		return nil, &Error{Check: checkNodeName, Got: "no attested node", Want: "one"}
	}
	claim := result.Claims.Kubernetes.Node
	switch {
	case claim == nil || claim.Name == "":
		return nil, &Error{Check: checkNodeClaim, Got: "a token without a node", Want: "node " + refusal.Text(node.Name)}
	case claim.Name != node.Name:
		return nil, &Error{Check: checkNodeName, Got: "a token of node " + refusal.Text(claim.Name), Want: "node " + refusal.Text(node.Name)}
	case claim.UID == "":
		return nil, &Error{Check: checkNodeClaimUID, Got: "a node without UID", Want: "the UID of Node " + refusal.Text(claim.Name)}
	}
	return claim, nil
}

// compare compares the token's node and the attested one with the Node and the registry.
func (c NodeCheck) compare(ctx context.Context, claim *Ref, node *AttestedNode, object *Object, now time.Time) (*NodeFacts, error) {
	if err := checkNode(claim, node, object, now); err != nil {
		return nil, err
	}
	machine, err := c.FindMachine(ctx, node.Name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Check: checkMachineUnknown, Got: "no machine", Want: "one that is registered for node " + refusal.Text(node.Name), Err: err}
	case err != nil || machine == nil:
		return nil, retry("machine of node "+refusal.Text(node.Name), err)
	}
	facts := &NodeFacts{Facts: FactNodeName | FactNodeUID, Node: *object, Machine: *machine}
	if node.UID != "" {
		facts.Facts |= FactAttestedUID
	}
	if err := cmp.Or(facts.compareMachine(node), facts.compareProviderID(node)); err != nil {
		return nil, err
	}
	if err := c.enough(facts.Facts, node); err != nil {
		return nil, err
	}
	return facts, nil
}

// checkNode compares the UIDs of claim, Node and attestation.
func checkNode(claim *Ref, node *AttestedNode, object *Object, now time.Time) error {
	switch {
	case claim.UID != object.UID && node.UID == object.UID:
		return &Error{Check: checkNodeClaimUID, Got: "a token of Node UID " + refusal.Text(claim.UID), Want: refusal.Text(object.UID)}
	case claim.UID != object.UID:
		return &Error{Check: checkNodeUID, Got: "Node UID " + refusal.Text(object.UID), Want: refusal.Text(claim.UID)}
	case node.UID != "" && node.UID != claim.UID:
		return &Error{Check: checkAttestedUID, Got: "a machine attested for Node UID " + refusal.Text(node.UID), Want: refusal.Text(claim.UID)}
	case object.Deleted != nil && object.Deleted.Before(now):
		return &Error{Check: checkNodeDeleted, Got: "Node " + refusal.Text(claim.Name) + ", which is being deleted", Want: "one that is not"}
	}
	return nil
}

// compareMachine compares the attested machine with the registered one and records the
// resulting facts.
func (f *NodeFacts) compareMachine(node *AttestedNode) error {
	compare := func(what, attested, registered string, fact Facts, check Check) error {
		switch {
		case attested == "" || registered == "":
		case attested != registered:
			return check.Refuse(what+refusal.Text(attested), refusal.Text(registered))
		default:
			f.Facts |= fact
		}
		return nil
	}
	return cmp.Or(
		compare("machine ", node.Machine, f.Machine.Identity, FactRegisteredMachine, checkRegisteredMachine),
		compare("machine UID ", node.MachineUID, f.Machine.UID, FactRegisteredMachineUID, checkRegisteredMachineUID),
	)
}

// compareProviderID does the same for the provider IDs of Node, certificate and registry.
func (f *NodeFacts) compareProviderID(node *AttestedNode) error {
	object, certificate, registered := f.Node.ProviderID, node.ProviderID, f.Machine.ProviderID
	differ := func(check Check, a, b string) error {
		_, got, want := oid.SameProviderID(a, b)
		return &Error{Check: check, Got: "provider ID " + got, Want: want}
	}
	same := func(a, b string) bool {
		same, _, _ := oid.SameProviderID(a, b)
		return same
	}
	want := cmp.Or(certificate, registered)
	switch {
	case want != "" && !same(object, want) && (object == "" || same(certificate, registered)):
		return differ(checkNodeProviderID, object, want)
	case certificate != "" && !same(certificate, object):
		return differ(checkCertificateProviderID, certificate, object)
	case registered != "" && !same(registered, object):
		return differ(checkRegisteredProviderID, registered, object)
	}
	if certificate != "" {
		f.Facts |= FactCertificateProviderID
	}
	if registered != "" {
		f.Facts |= FactRegisteredProviderID
	}
	return nil
}

// enough fails closed if nothing disagrees only because too little is known.
func (c NodeCheck) enough(f Facts, node *AttestedNode) error {
	presenter := presenterFacts
	if node.Machine != "" || node.MachineUID != "" {
		presenter = machineFacts
	}
	switch {
	case !f.Has(c.Require):
		return &Error{Check: checkFacts, Got: f.String(), Want: c.Require.String()}
	case f&registryFacts == 0:
		return &Error{Check: checkFacts, Got: f.String(), Want: "one of " + registryFacts.String()}
	case f&presenter == 0 && !c.InsecureAllowUnattested:
		return &Error{Check: checkFacts, Got: f.String(), Want: "one of " + presenter.String()}
	}
	return nil
}
