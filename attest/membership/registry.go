package membership

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Registry remembers which machine is which node, for trust on first use ([FirstUse]): one
// machine per node name, one node name per machine, and one inventory Machine for both.
//
// A record goes through these states:
//
//	(none) -Reserve-> reserved -Bind-> bound -Release-> resting -time-> (none)
//
// A reservation ends at its deadline. A bound record whose last certificate has ended can be replaced by
// a claim ([Claim.Over]). A resting record keeps its name from all machines, including its own, until
// every certificate that was issued under the name has expired. Its machine is free at once; its Machine
// UID is not. Adopt makes a resting record bound again, with the same machine and another Machine UID.
//
// # Contract
//
// Each method is atomic: it happens completely or not at all, and when it returns without an error,
// its change survives the end of the process. After an error that is not a refusal the caller must
// look up the record again. Every write gives the record a Version that no record of the registry had
// before; Bind, Rebind and Adopt change a record only if it still has the Version that the caller saw
// (compare-and-swap), otherwise they return [CheckRegistryConflict].
//
// A refusal is an *attest.Error with one of the registry's checks. It leaves everything as it
// was, including the refused claim unreserved. If the same call may succeed later, it wraps
// refusal.ErrRetry. Any other error, such as of a disk or network, decides nothing.
//
// All decisions are made by the rules, the methods of [Held]. An implementation over a store
// with transactions is a [Store]. One over a store that cannot change two entries at once
// reserves the name first, then the machine, both with the deadline, and treats a record as bound only
// when both entries agree; on a refusal it removes its own name entry.
// attesttest.RunRegistry checks an implementation against all of this.
//
// Methods are called from many goroutines and, where several registries share one store, from
// many processes. They keep none of their arguments and return records that the caller may
// change.
type Registry interface {
	// Scope returns the registry's scope.
	Scope() Scope

	// Reserve claims a node name for a machine until the deadline ([Held.Reserve]).
	Reserve(ctx context.Context, claim Claim, deadline time.Time) (*Record, error)

	// Bind makes a reservation of this Version final, or changes a bound record. In the same write
	// it records lastEnd, the latest end of a certificate, and the issued certificate, which may be
	// nil ([Held.Bind]). It must have returned before the certificate is approved or leaves its
	// signer. [FirstUse] calls it; call it yourself for the certificate of another signer
	// (csr.IssuedRecord.Completed).
	Bind(ctx context.Context, record *Record, lastEnd time.Time, issued *csr.IssuedRecord) (*Record, error)

	// Rebind gives a bound record another machine, for a replaced board, and frees the former
	// one ([Held.Rebind]). It is done by the operator, never by a join.
	Rebind(ctx context.Context, record *Record, machine attest.Identity) (*Record, error)

	// Adopt gives a bound record the UID of another Machine object for the same machine and
	// provider ID ([Held.Adopt]), as when a cluster's inventory is moved. A resting record becomes
	// bound again, for a machine that is back as another Machine object. It is done by the operator
	// or the owner of the inventory, who know that the machine is the same, never by [FirstUse].
	Adopt(ctx context.Context, record *Record, machineUID string) (*Record, error)

	// Release frees the name of an inventory Machine that is gone, by its UID, and reports whether
	// it had a record ([Held.Release]). The owner of the inventory must call it when a Machine is
	// deleted, or in a sweep over Records: nothing else frees a name.
	Release(ctx context.Context, nodeName, machineUID string) (released bool, err error)

	// Records yields every live record once, in any order, with few of them in memory at a time.
	// The loop and other callers may change records meanwhile: only unchanged records are sure to
	// be yielded. After an error the iteration ends, incomplete.
	Records(ctx context.Context) iter.Seq2[*Record, error]

	Lookups
}

// Lookups are the queries that a registry answers. They change nothing.
type Lookups interface {
	// Lookup returns the record of a node name, or nil.
	Lookup(ctx context.Context, nodeName string) (*Record, error)

	// LookupMachine returns the reserved or bound record of a machine, or nil.
	LookupMachine(ctx context.Context, machine attest.Identity) (*Record, error)

	// LookupMachineUID returns the record of an inventory Machine by its UID, in any state, or
	// nil. The UID "" has no record.
	LookupMachineUID(ctx context.Context, machineUID string) (*Record, error)
}

const (
	maxReservation    = time.Hour   // how far away a reservation's deadline may be
	clockSkew         = time.Minute // how far two clocks of a control plane may be apart
	maxMachineUIDSize = 253         // bytes
)

// IssuedRecords returns a registry's look-up for a csr.Policy: it finds the certificate that a
// kubelet presents in the live record of its node. While a certificate of the node is not recorded yet,
// an unknown one is a retry, as it may be that one. The result's LastEnd is the node record's.
func IssuedRecords(registry Lookups) func(ctx context.Context, credentialID string, r *csr.Request) (*csr.IssuedRecord, error) {
	return func(ctx context.Context, credentialID string, r *csr.Request) (*csr.IssuedRecord, error) {
		record, err := registry.Lookup(ctx, strings.TrimPrefix(r.User.Username, csr.NodeUserPrefix))
		if err != nil {
			return nil, err
		}
		if record == nil {
			return nil, csr.ErrNoRecord
		}
		err = csr.ErrNoRecord
		for _, issued := range record.Issued {
			switch issued.CredentialID {
			case credentialID:
				issued.LastEnd = record.LastEnd
				return &issued, nil
			case "":
				err = refusal.Retry(errIncomplete)
			}
		}
		return nil, err
	}
}

var errIncomplete = errors.New("membership: a certificate of the node is not recorded yet")

// Claim is a machine's claim to a node name, made after every other check.
type Claim struct {
	// NodeName is the node's name.
	NodeName string
	// Machine is the machine's identity, within the registry's scope.
	Machine attest.Identity
	// MachineUID is the UID of the inventory's Machine (csr.Machine), up to 253 bytes, or "".
	MachineUID string
	// ProviderID is the machine's provider ID, up to oid.MaxProviderIDSize bytes; "" if it is not
	// known yet.
	ProviderID string
	// Over is the Version of the name's bound record if its Node is gone; otherwise "". Reserve
	// then replaces that record by the claim, if a certificate was issued for it and the last one
	// has ended. It is not recorded.
	Over string
}

// Check returns an error with the check registry-claim for a claim that cannot be recorded.
func (c *Claim) Check() error {
	switch {
	case c == nil:
		return checkRegistryClaim.Refuse("", "a claim")
	case !names.ValidNode(c.NodeName):
		return checkRegistryClaim.Refuse(c.NodeName, names.WantNode(c.NodeName))
	case !names.ValidText(c.MachineUID, maxMachineUIDSize):
		return checkRegistryClaim.Refuse(c.MachineUID, "a Machine UID, printable and not too long")
	case !names.ValidText(c.ProviderID, oid.MaxProviderIDSize):
		return checkRegistryClaim.Refuse(c.ProviderID, "a provider ID, printable and not too long")
	case !c.Machine.Valid():
		return checkRegistryClaim.Refuse(string(c.Machine), "a machine identity")
	}
	return nil
}

// State is the state of a record in a registry.
type State string

// The states of a record. The empty string is not one of them.
const (
	// StateReserved: claimed until the deadline, no certificate issued.
	StateReserved State = "reserved"
	// StateBound: the machine is the node.
	StateBound State = "bound"
	// StateResting: the machine is gone, but certificates for the name may not be.
	StateResting State = "resting"
)

// Record is one entry of a [Registry].
type Record struct {
	Claim
	// State is reserved, bound or resting.
	State State
	// Deadline is the end of a reservation, in whole seconds: at that moment it is over. Zero
	// in the other states.
	Deadline time.Time
	// LastEnd is the latest end of any certificate that may have been issued for the name,
	// except recovery certificates, in whole seconds: the name rests through that second. Zero
	// without a certificate.
	LastEnd time.Time
	// Issued are the records of the machine's certificates as this node, by their end, at most
	// MaxIssued ([Held.Bind]). Times in them are in whole seconds. A reserved or resting record has
	// none.
	Issued []csr.IssuedRecord
	// Version changes with every change of the record and is never used again. It carries no
	// meaning.
	Version string
}

// Until returns the time at which a reserved or resting record ends. A bound record has no such end: the
// zero time.
func (r *Record) Until() time.Time {
	switch r.State {
	case StateReserved:
		return r.Deadline
	case StateResting:
		return r.LastEnd.Add(time.Second)
	}
	return time.Time{}
}

// Live reports whether the record has not ended. A reservation whose deadline is too far away is not
// live either: the clock of its writer was ahead.
func (r *Record) Live(now time.Time) bool {
	if r == nil {
		return false
	}
	until := r.Until()
	return until.IsZero() || now.Before(until) && (r.State != StateReserved || until.Sub(now) <= maxReservation+clockSkew)
}

// ended reports whether a bound record had certificates, and all have ended.
func (r *Record) ended(now time.Time) bool {
	return r.State == StateBound && !r.LastEnd.IsZero() && !now.Before(r.LastEnd.Add(time.Second))
}

// HoldsMachine reports whether the record keeps its machine from other names: a resting record
// does not.
func (r *Record) HoldsMachine() bool { return r != nil && r.State != StateResting }

// Checks of a registry and of [FirstUse] that other packages use.
const (
	// CheckRegistryResting: the machine of the node name is gone, but a certificate that was issued
	// to it may still be valid.
	CheckRegistryResting attest.Check = "registry-resting"
	// CheckRegistryConflict: the record has changed since it was read, or its
	// reservation is over. Always together with refusal.ErrRetry.
	CheckRegistryConflict attest.Check = "registry-conflict"
	// CheckRegistryScope: the machine identity is not of the registry's cluster, road and EK
	// algorithm; or, with refusal.ErrRetry or from attest.NewVerifier, the operator's configuration
	// fits no machine.
	CheckRegistryScope attest.Check = "registry-scope"
)

// Other checks of a registry and of [FirstUse].
const (
	// checkRegistryName: the node name is bound to another machine.
	checkRegistryName attest.Check = "registry-name"
	// checkRegistryMachine: the machine is bound to another node name.
	checkRegistryMachine attest.Check = "registry-machine"
	// checkRegistryReserved: name, machine or Machine UID is reserved for another
	// pair. Always together with refusal.ErrRetry.
	checkRegistryReserved attest.Check = "registry-reserved"
	// checkRegistryUID: the record of the name belongs to another Machine object, by its UID,
	// or the Machine object has a record under another name.
	checkRegistryUID attest.Check = "registry-machine-uid"
	// checkRegistryProviderID: the record carries a different provider ID.
	checkRegistryProviderID attest.Check = "registry-provider-id"
	// checkRegistryNode: there is a Node of that name but no record.
	checkRegistryNode attest.Check = "registry-node-without-record"
	// checkRegistryRequester: there is no record, and the request is not a new machine's.
	checkRegistryRequester attest.Check = "registry-requester"
	// checkRegistryInventory: the inventory has no UID for the machine, which trust on first
	// use of EKs requires. Always together with refusal.ErrRetry.
	checkRegistryInventory attest.Check = "registry-inventory"
	// checkRegistryClaim: an argument of a call cannot be recorded.
	checkRegistryClaim attest.Check = "registry-claim"
)
