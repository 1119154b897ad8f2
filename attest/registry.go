package attest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"github.com/nodeattest/nodeattest/refusal"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/oid"
)

// Registry remembers which machine is which node, for trust on first use
// ([FirstUse]): one machine for a node name, one node name for a machine.
//
// A record goes through these states:
//
//	(none) -Reserve-> reserved -Bind-> bound -Release-> resting -time-> (none)
//
// A reservation is worth nothing after its deadline: then it is as if it had never
// been made. A resting record keeps its name from everybody, the same machine
// included, until every certificate that was issued under the name has expired;
// its machine is free at once.
//
// # Contract
//
// Each method is atomic: it happens whole or not at all, and when it returns
// without an error, what it did survives the end of the process. After an error
// that is no refusal nothing is known: the caller looks again. Every write gives
// the record a Version that no record of the registry had before; Bind, Raise and
// Rebind change a record only if it still has the Version that the caller saw
// (compare-and-swap), else they return [CheckRegistryConflict].
//
// A refusal is an [*Error] with one of the registry's checks, and it leaves
// everything as it was, the refused claim unreserved too. Where the same call may
// succeed later its Err is [csr.ErrRetry]. Every other error means that the
// registry could not find out, and must not be taken for an answer.
//
// An implementation over a store that cannot change two entries at once reserves
// the name first, then the machine, both with the deadline, and counts a record
// as bound only when both entries agree; on a refusal it takes its own name
// entry back. attesttest.RunRegistry holds an implementation against all this.
//
// Methods are called from many goroutines, and with several registries on one
// store from many processes. They keep none of their arguments and return records
// that the caller may change.
type Registry interface {
	// Scope returns what the registry was made for.
	Scope() RegistryScope

	// Reserve claims a node name for a machine until the deadline, which must be
	// in the future and at most MaxReservation away. If the pair is reserved
	// already, by this very claim, the deadline becomes the new one; if it is bound
	// already, the record is returned as it is, but that a provider ID which was
	// unknown is filled in.
	//
	// It refuses, in this order: a name that rests (CheckRegistryResting), is
	// reserved for another machine (CheckRegistryReserved, to be tried again) or
	// bound to another (CheckRegistryName); a record of the pair with another
	// Machine UID (CheckRegistryUID) or provider ID (CheckRegistryProviderID); a
	// machine that is reserved (CheckRegistryReserved) or bound
	// (CheckRegistryMachine) under another name.
	Reserve(ctx context.Context, claim RegistryClaim, deadline time.Time) (*RegistryRecord, error)

	// Bind makes a reservation of this Version final. After the deadline it is
	// refused with CheckRegistryConflict. A bound record is returned as it is.
	Bind(ctx context.Context, record *RegistryRecord) (*RegistryRecord, error)

	// Raise records that a certificate for the bound record may be valid until
	// lastEnd, rounded up to whole seconds; an earlier one than recorded changes
	// nothing. It must have returned before the certificate is approved.
	Raise(ctx context.Context, record *RegistryRecord, lastEnd time.Time) (*RegistryRecord, error)

	// Rebind gives a bound record another machine, for a replaced board, and frees
	// the former one. It is an act of the operator, never of a join. It refuses a
	// machine of another name as Reserve does.
	Rebind(ctx context.Context, record *RegistryRecord, machine Identity) (*RegistryRecord, error)

	// Release says that the inventory's Machine with this UID is gone. After it
	// there is no reserved or bound record of the name with that UID; a bound one
	// rests until its LastEnd has passed. A record of another UID is left alone,
	// and having nothing to do is no error.
	Release(ctx context.Context, nodeName, machineUID string) error

	// Lookup returns the record of a node name, nil where there is none.
	Lookup(ctx context.Context, nodeName string) (*RegistryRecord, error)

	// LookupMachine returns the reserved or bound record of a machine, nil where
	// there is none.
	LookupMachine(ctx context.Context, machine Identity) (*RegistryRecord, error)
}

// Limits of a registry.
const (
	// MaxReservation is how far away a reservation's deadline may be.
	MaxReservation = time.Hour
	// MaxIdentitySize bounds a machine identity in a registry or a list, in bytes.
	MaxIdentitySize = 1024
	// MaxMachineUIDSize bounds a Machine's UID in a registry, in bytes.
	MaxMachineUIDSize = 253
)

// RegistryScope is what machine identities a registry holds. One machine has
// several keys: an EK of each algorithm and any number of AKs. So that it does not
// count as several machines, one registry serves one road and, on [RoadEK], one
// algorithm of EKs.
type RegistryScope struct {
	// Road is the road on which the identities were found; the zero value is RoadAK.
	Road Road
	// EKAlgorithm is empty on RoadAK, and on RoadEK one of "RSA-2048", "RSA-3072",
	// "RSA-4096", "P-256", "P-384" and "P-521".
	EKAlgorithm string
}

// String returns "ak", or "ek" and the algorithm: "ek RSA-2048".
func (s RegistryScope) String() string {
	if s.EKAlgorithm == "" {
		return s.Road.String()
	}
	return s.Road.String() + " " + s.EKAlgorithm
}

func (s RegistryScope) check() error {
	switch {
	case s == RegistryScope{Road: RoadAK}:
		return nil
	case s.Road == RoadEK:
		switch s.EKAlgorithm {
		case "RSA-2048", "RSA-3072", "RSA-4096", "P-256", "P-384", "P-521":
			return nil
		}
	}
	return fmt.Errorf("attest: registry scope %q is neither ak nor ek with an algorithm", s.String())
}

// keyAlgorithm is the name that RegistryScope has for the algorithm of a key; ""
// for kinds that no EK has.
func keyAlgorithm(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RSA-" + strconv.Itoa(k.N.BitLen())
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	}
	return ""
}

// RegistryClaim is what a node that passed every other check asks to be recorded.
type RegistryClaim struct {
	// NodeName is the node's name.
	NodeName string
	// Machine is the machine's identity, of the registry's scope.
	Machine Identity
	// MachineUID is the UID of the inventory's Machine ([csr.Machine]), up to
	// MaxMachineUIDSize bytes; "" where the inventory has none.
	MachineUID string
	// ProviderID is the provider ID that the inventory has for it, up to
	// [oid.MaxProviderIDSize] bytes; "" where it is not known yet.
	ProviderID string
}

// check refuses claims that cannot be recorded. It returns a plain error: they do
// not come out of a verification.
func (c *RegistryClaim) check() error {
	switch {
	case !csr.ValidNodeName(c.NodeName):
		return fmt.Errorf("attest: registry: %q is no node name", refusal.Text(c.NodeName))
	case !plainText(c.MachineUID, MaxMachineUIDSize):
		return errors.New("attest: registry: the Machine UID is too long or not printable")
	case !plainText(c.ProviderID, oid.MaxProviderIDSize):
		return errors.New("attest: registry: the provider ID is too long or not printable")
	}
	return checkIdentityText(c.Machine)
}

// checkIdentityText checks that an identity has a kind and can be written down.
func checkIdentityText(id Identity) error {
	kind := id.Kind()
	if len(kind) == 0 || len(kind) >= len(id)-1 || !plainText(string(id), MaxIdentitySize) {
		return fmt.Errorf("attest: %q is no machine identity", refusal.Text(string(id)))
	}
	return nil
}

// plainText reports whether s is printable UTF-8 of at most size bytes.
func plainText(s string, size int) bool {
	if len(s) > size || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// RecordState is the state of a record in a registry.
type RecordState string

// The states of a record. The empty one is none of them.
const (
	// RecordReserved: claimed until the deadline, no certificate issued.
	RecordReserved RecordState = "reserved"
	// RecordBound: the machine is the node.
	RecordBound RecordState = "bound"
	// RecordResting: the machine is gone and certificates for the name may not be.
	RecordResting RecordState = "resting"
)

// RegistryRecord is one entry of a [Registry].
type RegistryRecord struct {
	RegistryClaim
	// State is reserved, bound or resting.
	State RecordState
	// Deadline is the end of a reservation, in whole seconds: at that moment it is
	// over. Zero in the other states.
	Deadline time.Time
	// LastEnd is the latest end of any certificate that may have been issued for
	// the name, in whole seconds: the name rests through that second. Zero where
	// none has been.
	LastEnd time.Time
	// Version changes with every change of the record and is never used again.
	// Nothing can be read out of it.
	Version string
}

// Checks of a registry, and of [FirstUse], which asks it.
const (
	// CheckRegistryName: the node name is bound to another machine.
	CheckRegistryName Check = "registry-name"
	// CheckRegistryMachine: the machine is bound to another node name.
	CheckRegistryMachine Check = "registry-machine"
	// CheckRegistryReserved: name or machine is reserved for another pair. Always
	// together with [csr.ErrRetry].
	CheckRegistryReserved Check = "registry-reserved"
	// CheckRegistryResting: a certificate for the node name may still be valid
	// that was issued to a machine that is gone.
	CheckRegistryResting Check = "registry-resting"
	// CheckRegistryUID: the record is of another Machine object, by its UID.
	CheckRegistryUID Check = "registry-machine-uid"
	// CheckRegistryProviderID: the record carries another provider ID.
	CheckRegistryProviderID Check = "registry-provider-id"
	// CheckRegistryConflict: the record has changed since it was read, or its
	// reservation is over. Always together with [csr.ErrRetry].
	CheckRegistryConflict Check = "registry-conflict"
	// CheckRegistryNode: there is a Node of that name, and no record.
	CheckRegistryNode Check = "registry-node-without-record"
	// CheckRegistryRequester: there is no record, and the request is none that a
	// new machine makes.
	CheckRegistryRequester Check = "registry-requester"
	// CheckRegistryScope: the machine identity is not of the registry's road and EK
	// algorithm, or names a key where it must name a machine.
	CheckRegistryScope Check = "registry-scope"
)
