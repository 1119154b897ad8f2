package claims

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// The ways in which a token and an attested node can disagree. Each is refused by its own
// check; where three sources state a value, the check says which one stands alone.
const (
	// CheckNodeClaim: the token names no node.
	CheckNodeClaim Check = "node-claim"
	// CheckNodeClaimUID: the token's node has no UID, or it is not that of the Node that
	// was attested and lives.
	CheckNodeClaimUID Check = "node-claim-uid"
	// CheckNodeName: the token names another node than the attested one. A token that is
	// replayed from another node ends here.
	CheckNodeName Check = "node-name"
	// CheckNodeGone: there is no Node of that name.
	CheckNodeGone Check = "node-gone"
	// CheckNodeDeleted: the Node is being deleted.
	CheckNodeDeleted Check = "node-deleted"
	// CheckNodeUID: the Node that lives now is not the one that the token names: it was
	// deleted and made again.
	CheckNodeUID Check = "node-uid"
	// CheckAttestedUID: the machine was attested for another Node object of that name.
	CheckAttestedUID Check = "attested-uid"
	// CheckMachineUnknown: no machine is registered for the node's name.
	CheckMachineUnknown Check = "machine-unregistered"
	// CheckRegisteredMachine: another machine is registered for the node's name than the
	// one that was attested.
	CheckRegisteredMachine Check = "registered-machine"
	// CheckRegisteredMachineUID: another object stands for the machine that is registered
	// for the node's name than for the one that was attested.
	CheckRegisteredMachineUID Check = "registered-machine-uid"
	// CheckNodeProviderID: the Node's provider ID is not that of certificate and registry,
	// or it has none where the certificate or the registry has one.
	CheckNodeProviderID Check = "node-provider-id"
	// CheckCertificateProviderID: the provider ID that was vouched for is not that of the
	// Node.
	CheckCertificateProviderID Check = "certificate-provider-id"
	// CheckRegisteredProviderID: the registered machine has another provider ID than the
	// Node.
	CheckRegisteredProviderID Check = "registered-provider-id"
	// CheckFacts: nothing disagrees, but too little is known.
	CheckFacts Check = "facts"
	// CheckUnvalidated: the result is not one that a validator returned.
	CheckUnvalidated Check = "unvalidated-result"
)

// NodeCheck decides whether a token was issued to a workload on the very machine that
// presents it (KEP-4193, user story 1). The zero value refuses.
//
// The node's name and UID in the token, the Node object and its provider ID, what was
// vouched for when the machine was attested, and the machine that is registered for the
// name must all agree as far as they are known. Always required are
//
//   - [FactNodeName] and [FactNodeUID];
//   - the registry's word, without which it would be the Node object's alone, which the
//     node itself may write: [FactRegisteredProviderID], [FactRegisteredMachine] or
//     [FactRegisteredMachineUID];
//   - a fact of the presenter, without which its certificate's name would be all that ties
//     it to the registered machine, a name that the machine that was this node before has
//     in its certificate too, and one that was never attested may have:
//     [FactAttestedUID], [FactCertificateProviderID], [FactRegisteredMachine] or
//     [FactRegisteredMachineUID].
type NodeCheck struct {
	// Machines is the registry. It is required.
	Machines Machines
	// Require are facts that must be there besides.
	Require Facts
	// InsecureAllowUnattested does without a fact of the presenter. Every certificate with
	// the node's name that the CA signed then passes, attested or not, and also that of
	// the machine that had the name before.
	InsecureAllowUnattested bool
}

// Check compares a validated token with an attested node, for results that another
// validator returned: one with a Node in its configuration does it itself, in
// [Validator.ValidateOnNode]. Objects gets the Node; a [StaleObjects] is taken inside a
// [FreshObjects] alone. The result must come from a validator, as it was
// ([CheckUnvalidated]). Every refusal is an [*Error] with a check of its own; where the
// Node or the registry could not be asked the error is [ErrRetry]. A check without objects
// or Machines is an error with [refusal.CheckConfig].
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
	if result == nil || !result.validated {
		return nil, &Error{Check: CheckUnvalidated, Got: "a result that no validator returned", Want: "a validated token"}
	}
	claim, err := nodeClaim(result, node)
	if err != nil {
		return nil, err
	}
	object, err := fresh.Node(ctx, claim.Name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Check: CheckNodeGone, Got: "no Node " + refusal.Text(claim.Name), Want: "the one with UID " + refusal.Text(claim.UID), Err: err}
	case object == nil:
		return nil, retry("Node "+refusal.Text(claim.Name), err)
	}
	return c.compare(ctx, claim, node, object, now)
}

// isZero reports whether nobody asked for the check.
func (c NodeCheck) isZero() bool {
	return c.Machines == nil && c.Require == 0 && !c.InsecureAllowUnattested
}

// ready fails where the check would have nobody to ask.
func (c NodeCheck) ready() error {
	switch {
	case c.Machines == nil:
		return refusal.Config("Machines", "", "a registry of machines")
	case c.Require >= endOfFacts:
		return refusal.Config("Require", "of unknown facts", "facts of this package")
	}
	return nil
}

// nodeClaim returns the token's node, which must be the attested one by name.
func nodeClaim(result *Result, node *AttestedNode) (*Ref, error) {
	if node == nil {
		return nil, &Error{Check: CheckNodeName, Got: "no attested node", Want: "one"}
	}
	claim := result.Claims.Kubernetes.Node
	switch {
	case claim == nil || claim.Name == "":
		return nil, &Error{Check: CheckNodeClaim, Got: "a token without a node", Want: "node " + refusal.Text(node.Name)}
	case claim.Name != node.Name:
		return nil, &Error{Check: CheckNodeName, Got: "a token of node " + refusal.Text(claim.Name), Want: "node " + refusal.Text(node.Name)}
	case claim.UID == "":
		return nil, &Error{Check: CheckNodeClaimUID, Got: "a node without UID", Want: "the UID of Node " + refusal.Text(claim.Name)}
	}
	return claim, nil
}

// compare compares the token's node and the attested one with the Node and the registry.
func (c NodeCheck) compare(ctx context.Context, claim *Ref, node *AttestedNode, object *Node, now time.Time) (*NodeFacts, error) {
	if err := checkNode(claim, node, object, now); err != nil {
		return nil, err
	}
	machine, err := c.Machines.Machine(ctx, node.Name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Check: CheckMachineUnknown, Got: "no machine", Want: "one that is registered for node " + refusal.Text(node.Name), Err: err}
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
	if err := c.enough(facts.Facts); err != nil {
		return nil, err
	}
	return facts, nil
}

// checkNode compares the UIDs of claim, Node and attestation.
func checkNode(claim *Ref, node *AttestedNode, object *Node, now time.Time) error {
	switch {
	case object.UID == claim.UID:
	case node.UID == object.UID:
		return &Error{Check: CheckNodeClaimUID, Got: "a token of Node UID " + refusal.Text(claim.UID), Want: refusal.Text(object.UID)}
	default:
		return &Error{Check: CheckNodeUID, Got: "Node UID " + refusal.Text(object.UID), Want: refusal.Text(claim.UID)}
	}
	if node.UID != "" && node.UID != claim.UID {
		return &Error{Check: CheckAttestedUID, Got: "a machine attested for Node UID " + refusal.Text(node.UID), Want: refusal.Text(claim.UID)}
	}
	if object.Deleted != nil && object.Deleted.Before(now) {
		return &Error{Check: CheckNodeDeleted, Got: "Node " + refusal.Text(claim.Name) + ", deleted", Want: "one that lives"}
	}
	return nil
}

// compareMachine compares the machine that was attested with the registered one and records
// which facts that gives.
func (f *NodeFacts) compareMachine(node *AttestedNode) error {
	for _, of := range [...]struct {
		what                 string
		attested, registered string
		fact                 Facts
		check                Check
	}{
		{"machine ", node.Machine, f.Machine.Identity, FactRegisteredMachine, CheckRegisteredMachine},
		{"machine UID ", node.MachineUID, f.Machine.UID, FactRegisteredMachineUID, CheckRegisteredMachineUID},
	} {
		switch {
		case of.attested == "" || of.registered == "":
		case of.attested != of.registered:
			return &Error{Check: of.check, Got: of.what + refusal.Text(of.attested), Want: refusal.Text(of.registered)}
		default:
			f.Facts |= of.fact
		}
	}
	return nil
}

// compareProviderID does so with the provider IDs of the three.
func (f *NodeFacts) compareProviderID(node *AttestedNode) error {
	object, certificate, registered := f.Node.ProviderID, node.ProviderID, f.Machine.ProviderID
	want := cmp.Or(certificate, registered)
	switch {
	case want != "" && object != want && (object == "" || certificate == registered):
		return &Error{Check: CheckNodeProviderID, Got: "provider ID " + refusal.OrNothing(refusal.Text(object)), Want: want}
	case certificate != "" && certificate != object:
		return &Error{Check: CheckCertificateProviderID, Got: "provider ID " + refusal.Text(certificate), Want: object}
	case registered != "" && registered != object:
		return &Error{Check: CheckRegisteredProviderID, Got: "provider ID " + refusal.Text(registered), Want: object}
	}
	if certificate != "" {
		f.Facts |= FactCertificateProviderID
	}
	if registered != "" {
		f.Facts |= FactRegisteredProviderID
	}
	return nil
}

// enough fails closed where nothing disagrees because too little is known.
func (c NodeCheck) enough(f Facts) error {
	switch {
	case !f.Has(c.Require):
		return &Error{Check: CheckFacts, Got: f.String(), Want: c.Require.String()}
	case f&registryFacts == 0:
		return &Error{Check: CheckFacts, Got: f.String(), Want: "one of " + registryFacts.String()}
	case f&presenterFacts == 0 && !c.InsecureAllowUnattested:
		return &Error{Check: CheckFacts, Got: f.String(), Want: "one of " + presenterFacts.String()}
	}
	return nil
}
