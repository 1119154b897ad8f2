package registry

import (
	"context"
	"errors"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// Several are registries of several scopes over the same objects, one at least: where a
// cluster takes several kinds of evidence. They find records whatever their scope. Who may
// be a node is for the registry of its kind to say, which refuses what is of another scope.
type Several []*Registry

// Lookup is that of the registry which has the node.
func (s Several) Lookup(ctx context.Context, nodeName string) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.Lookup(ctx, nodeName) })
}

// LookupMachine is that of the registry which has the machine.
func (s Several) LookupMachine(ctx context.Context, machine attest.Identity) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.LookupMachine(ctx, machine) })
}

// LookupMachineUID is that of the registry which has the Machine.
func (s Several) LookupMachineUID(ctx context.Context, machineUID string) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.LookupMachineUID(ctx, machineUID) })
}

// Bind is that of the registry which has the record.
func (s Several) Bind(ctx context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	return s.first(func(r *Registry) (*membership.Record, error) { return r.Bind(ctx, record, lastEnd, issued) })
}

// first asks the registries until one says that the record is of its scope.
func (s Several) first(ask func(*Registry) (*membership.Record, error)) (record *membership.Record, err error) {
	err = errNone
	for _, r := range s {
		if record, err = ask(r); !errors.Is(err, membership.CheckRegistryScope) {
			return record, err
		}
	}
	return nil, err
}

var errNone = errors.New("registry: none of several")
