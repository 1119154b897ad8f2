package registry

import (
	"context"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// Bind makes a reservation final, or takes a bound record, and records the last end and a
// certificate; see membership.Registry. It takes one write. A reservation that is incomplete,
// because its maker died, is refused as if it had changed.
//
// Nodes that this registry has read or written are not read again: the write fails if the node has
// changed.
func (r *Registry) Bind(ctx context.Context, seen *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	if n := r.recent.of(seen); n != nil && r.own(n) == nil {
		change, err := membership.Held{Name: n.record}.Bind(seen, lastEnd, issued, r.now())
		if err == nil && change.Put {
			return r.bind(ctx, n, change.Record)
		}
	}
	s, err := r.look(ctx, seenName(seen))
	if err != nil {
		return nil, err
	}
	change, err := s.held.Bind(seen, lastEnd, issued, r.now())
	if err != nil {
		return nil, err
	}
	if !change.Put {
		return clone(change.Record), nil
	}
	return r.bind(ctx, s.name, change.Record)
}

// bind writes a record over a bound node, or over a complete reservation.
func (r *Registry) bind(ctx context.Context, n *node, record *membership.Record) (*membership.Record, error) {
	if n.record.State == membership.StateReserved && !n.complete {
		if err := r.complete(ctx, n); err != nil {
			return nil, err
		}
	}
	bound, err := r.put(ctx, n, record)
	if err != nil {
		return nil, lost(err, record.NodeName)
	}
	r.recent.add(bound)
	return clone(bound.record), nil
}

// complete checks that the pointers of a reservation name its version. It is enough to check
// the one that is written last: the other was written before it, and a claim that takes one away
// ends the reservation first. For the same reason it is enough that a cache has seen it. (A pointer
// that was edited or removed by hand goes unnoticed until [Registry.Repair].)
func (r *Registry) complete(ctx context.Context, n *node) error {
	kind := byMachine()
	if n.record.MachineUID != "" {
		kind = byMachineUID()
	}
	if r.stale != nil && r.over(r.stale).has(ctx, n, kind) == nil {
		return nil
	}
	return r.has(ctx, n, kind)
}

// has checks that the pointer of one kind names the version of a reservation.
func (r *Registry) has(ctx context.Context, n *node, kind pointerKind) error {
	p, err := r.readPointer(ctx, kind, kind.of(&n.record.Claim), n)
	if err != nil {
		return err
	}
	if !p.pointsTo(n.record.NodeName) || p.to.Reservation != n.record.Version {
		return conflict("a reservation of node "+n.record.NodeName+" that does not have its "+kind.what, "one that has")
	}
	return nil
}
