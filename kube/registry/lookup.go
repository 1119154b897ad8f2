package registry

import (
	"context"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
)

// Lookup returns the record of a node name, or nil.
func (r *Registry) Lookup(ctx context.Context, nodeName string) (*membership.Record, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	n, err := r.readNode(ctx, nodeName)
	if err != nil || n == nil {
		return nil, err
	}
	r.recent.add(n)
	return r.counts(n, n.record)
}

// LookupMachine returns the reserved or bound record of a machine, or nil. A machine that a bound node
// is about to get is reserved for it.
func (r *Registry) LookupMachine(ctx context.Context, machine attest.Identity) (*membership.Record, error) {
	return r.lookup(ctx, byMachine(), string(machine))
}

// LookupMachineUID returns the record of a Machine UID, or nil.
func (r *Registry) LookupMachineUID(ctx context.Context, machineUID string) (*membership.Record, error) {
	return r.lookup(ctx, byMachineUID(), machineUID)
}

func (r *Registry) lookup(ctx context.Context, kind pointerKind, identity string) (*membership.Record, error) {
	if err := r.check(ctx); err != nil || identity == "" {
		return nil, err
	}
	p, err := r.readPointer(ctx, kind, identity, nil)
	if err != nil {
		return nil, err
	}
	record := p.record()
	if record == nil || !kind.holds(record) {
		return nil, nil
	}
	return r.counts(p.target, record)
}

// counts returns a copy of a record if it counts, and nil otherwise.
func (r *Registry) counts(n *node, record *membership.Record) (*membership.Record, error) {
	if !record.Live(r.now()) {
		return nil, nil
	}
	if err := r.own(n); err != nil {
		return nil, err
	}
	return clone(record), nil
}
