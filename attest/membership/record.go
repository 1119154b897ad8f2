package membership

import (
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/internal/plaintext"
	"github.com/nodeattest/nodeattest/oid"
)

// Claim is what a node that passed every other check asks to be recorded.
type Claim struct {
	// NodeName is the node's name.
	NodeName string
	// Machine is the machine's identity, of the registry's scope.
	Machine attest.Identity
	// MachineUID is the UID of the inventory's Machine (csr.Machine), up to
	// MaxMachineUIDSize bytes; "" where the inventory has none.
	MachineUID string
	// ProviderID is the provider ID that the inventory has for it, up to
	// oid.MaxProviderIDSize bytes; "" where it is not known yet.
	ProviderID string
}

// Check returns an error with [CheckRegistryClaim] for a claim that cannot be recorded.
func (c *Claim) Check() error {
	switch {
	case !nodename.Valid(c.NodeName):
		return badClaim(c.NodeName, "a node name")
	case !plaintext.Valid(c.MachineUID, MaxMachineUIDSize):
		return badClaim(c.MachineUID, "a Machine UID, printable and not too long")
	case !plaintext.Valid(c.ProviderID, oid.MaxProviderIDSize):
		return badClaim(c.ProviderID, "a provider ID, printable and not too long")
	case !c.Machine.Valid():
		return badClaim(string(c.Machine), "a machine identity")
	}
	return nil
}

func badClaim(got, want string) error {
	return &attest.Error{Check: CheckRegistryClaim, Got: got, Want: want}
}

// State is the state of a record in a registry.
type State string

// The states of a record. The empty one is none of them.
const (
	// StateReserved: claimed until the deadline, no certificate issued.
	StateReserved State = "reserved"
	// StateBound: the machine is the node.
	StateBound State = "bound"
	// StateResting: the machine is gone and certificates for the name may not be.
	StateResting State = "resting"
)

// Record is one entry of a [Registry].
type Record struct {
	Claim
	// State is reserved, bound or resting.
	State State
	// Deadline is the end of a reservation, in whole seconds: at that moment it is
	// over. Zero in the other states.
	Deadline time.Time
	// LastEnd is the latest end of any certificate that may have been issued for
	// the name, recovery certificates aside, in whole seconds: the name rests through that
	// second. Zero where none has been.
	LastEnd time.Time
	// Issued are the records of the certificates with which the machine comes as the node,
	// those that end first in front, at most MaxIssued ([Held.Bind]). Times in them are in
	// whole seconds. A reserved or resting record has none.
	Issued []csr.IssuedRecord
	// Version changes with every change of the record and is never used again.
	// Nothing can be read out of it.
	Version string
}

// Until returns when a record ends by itself: at that moment it counts no more. A bound
// record has no such end: the zero time.
func (r *Record) Until() time.Time {
	switch r.State {
	case StateReserved:
		return r.Deadline
	case StateResting:
		return r.LastEnd.Add(time.Second)
	}
	return time.Time{}
}

// Live reports whether the record counts: it has not come to its end.
func (r *Record) Live(now time.Time) bool {
	until := r.Until()
	return until.IsZero() || now.Before(until)
}

// HoldsMachine reports whether the record keeps its machine from other names: one that
// rests does not.
func (r *Record) HoldsMachine() bool { return r.State != StateResting }

// Checks of a registry, and of [FirstUse], which asks it.
const (
	// CheckRegistryName: the node name is bound to another machine.
	CheckRegistryName attest.Check = "registry-name"
	// CheckRegistryMachine: the machine is bound to another node name.
	CheckRegistryMachine attest.Check = "registry-machine"
	// CheckRegistryReserved: name, machine or Machine UID is reserved for another
	// pair. Always together with csr.ErrRetry.
	CheckRegistryReserved attest.Check = "registry-reserved"
	// CheckRegistryResting: a certificate for the node name may still be valid
	// that was issued to a machine that is gone.
	CheckRegistryResting attest.Check = "registry-resting"
	// CheckRegistryUID: the record of the name is of another Machine object, by its
	// UID, or the Machine object has a record under another name.
	CheckRegistryUID attest.Check = "registry-machine-uid"
	// CheckRegistryProviderID: the record carries another provider ID.
	CheckRegistryProviderID attest.Check = "registry-provider-id"
	// CheckRegistryConflict: the record has changed since it was read, or its
	// reservation is over. Always together with csr.ErrRetry.
	CheckRegistryConflict attest.Check = "registry-conflict"
	// CheckRegistryNode: there is a Node of that name, and no record.
	CheckRegistryNode attest.Check = "registry-node-without-record"
	// CheckRegistryRequester: there is no record, and the request is none that a
	// new machine makes.
	CheckRegistryRequester attest.Check = "registry-requester"
	// CheckRegistryScope: the machine identity is not of the registry's road and EK
	// algorithm; or, with csr.ErrRetry or from attest.NewVerifier, the operator's
	// configuration lets no machine be of it.
	CheckRegistryScope attest.Check = "registry-scope"
	// CheckRegistryInventory: the inventory has no UID for the machine, which trust on
	// first use of EKs cannot do without. Always together with csr.ErrRetry.
	CheckRegistryInventory attest.Check = "registry-inventory"
	// CheckRegistryClaim: an argument of a call is none that can be recorded.
	CheckRegistryClaim attest.Check = "registry-claim"
)
