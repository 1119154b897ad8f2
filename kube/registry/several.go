package registry

import (
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// Several is at least one registry, each of another scope, over the same objects: for a
// cluster that accepts several kinds of evidence. It finds records whatever their scope. Who
// may be a node is decided by the registry of its kind, which refuses records of another
// scope.
type Several []*Registry

// Lookup is the Lookup of the registry that has the node.
func (s Several) Lookup(ctx context.Context, nodeName string) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.Lookup(ctx, nodeName) })
}

// LookupMachine is the LookupMachine of the registry that has the machine.
func (s Several) LookupMachine(ctx context.Context, machine attest.Identity) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.LookupMachine(ctx, machine) })
}

// LookupMachineUID is the LookupMachineUID of the registry that has the Machine.
func (s Several) LookupMachineUID(ctx context.Context, machineUID string) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.LookupMachineUID(ctx, machineUID) })
}

// Bind is the Bind of the registry that has the record.
func (s Several) Bind(ctx context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.Bind(ctx, record, lastEnd, issued) })
}

// Adopt is the Adopt of the registry that has the record.
func (s Several) Adopt(ctx context.Context, record *membership.Record, machineUID string) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.Adopt(ctx, record, machineUID) })
}

// Release is the Release of the registry that has the record.
func (s Several) Release(ctx context.Context, nodeName, machineUID string) (released bool, err error) {
	err = errNone
	for _, r := range s {
		if released, err = r.Release(ctx, nodeName, machineUID); released || err != nil {
			return released, err
		}
	}
	return false, err
}

// first asks the registries in turn until one says that the record is of its scope.
func (s Several) first(ask func(*Registry) (*membership.Record, error)) (record *membership.Record, err error) {
	err = errNone
	for _, r := range s {
		if record, err = ask(r); !errors.Is(err, membership.CheckRegistryScope) {
			return record, err
		}
	}
	return nil, err
}

var errNone = errors.New("registry: a Several without registries")
