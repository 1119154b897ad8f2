package membership

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/refusal"
)

// Store stores records and finds them by node name, by machine and by Machine UID. It applies no rules:
// [NewRegistry] makes a [Registry] from it.
type Store interface {
	// View calls f with the records as they are at one moment, unless ctx has ended. f calls
	// neither Put nor Drop.
	View(ctx context.Context, f func(Tx) error) error
	// Update calls f, one call at a time. If f returns nil, its writes survive the end of the
	// process once Update returns. If not, or if ctx has ended, none is kept and the error is
	// returned. f may write nothing.
	Update(ctx context.Context, f func(Tx) error) error
}

// Tx is one transaction of a [Store]. It finds records, also ended ones; nil without an error means no
// record. The caller does not change the records, and reads before it writes: whether a transaction finds
// its own writes is the store's choice. Of several writes for a name, the last one counts.
type Tx interface {
	// ByName finds the record of a node name.
	ByName(nodeName string) (*Record, error)
	// ByMachine finds the record that holds the machine ([Record.HoldsMachine]).
	ByMachine(machine attest.Identity) (*Record, error)
	// ByMachineUID finds the record of a UID; it is not asked for "".
	ByMachineUID(machineUID string) (*Record, error)
	// After finds up to limit records whose node names come after this one, in name order.
	After(nodeName string, limit int) ([]*Record, error)

	// Put stores a record, replacing that of its name, and returns it with a Version that no
	// record of the store ever had.
	Put(r Record) (*Record, error)
	// Drop removes the record of a name, if there is one.
	Drop(nodeName string) error
	// Due returns up to limit names of records that have ended ([Record.Until]), in any order.
	Due(now time.Time, limit int) ([]string, error)
}

// sweepSize is the number of ended records that a write removes. A write makes at most one record that
// will end, so they do not pile up.
const sweepSize = 4

// storeRegistry is a [Registry] over a [Store].
type storeRegistry struct {
	scope Scope
	store Store
	now   func() time.Time
}

// RegistryOptions are the choices of [NewRegistry] and [NewMemoryRegistry].
type RegistryOptions struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// NewRegistry makes a registry from a store. It lists records in the order of their node names.
// The error is that of [Scope.Check], or refusal.CheckConfig for a nil store.
func NewRegistry(scope Scope, store Store, options RegistryOptions) (Registry, error) {
	if err := scope.Check(); err != nil {
		return nil, err
	}
	if store == nil {
		return nil, refusal.Config("Store", "", "one")
	}
	options.Now = wallclock.Or(options.Now)
	return &storeRegistry{scope: scope, store: store, now: options.Now}, nil
}

// Scope returns the scope that the registry was made with.
func (s *storeRegistry) Scope() Scope { return s.scope }

// held reads the records of a claim's name, machine and UID, if they are not empty.
func held(r Tx, c *Claim) (h Held, err error) {
	h.Name, err = r.ByName(c.NodeName)
	if err == nil && c.Machine != "" {
		h.Machine, err = r.ByMachine(c.Machine)
	}
	if err == nil && c.MachineUID != "" {
		h.MachineUID, err = r.ByMachineUID(c.MachineUID)
	}
	return h, err
}

// change applies a rule to the records of a claim, and makes its change.
func (s *storeRegistry) change(ctx context.Context, around Claim, rule func(h Held, now time.Time) (Change, error)) (*Record, error) {
	var out *Record
	err := s.store.Update(ctx, func(w Tx) error {
		now := s.now()
		h, err := held(w, &around)
		if err != nil {
			return err
		}
		c, err := rule(h, now)
		if err != nil {
			return err
		}
		out = c.Record
		if !c.Put && !c.Drop {
			return nil
		}
		if err := sweep(w, now); err != nil {
			return err
		}
		if c.Drop {
			return w.Drop(c.Record.NodeName)
		}
		out, err = replace(w, h, c.Record, now)
		return err
	})
	return clone(out, err)
}

// changeSeen is change for the record that the caller has read.
func (s *storeRegistry) changeSeen(
	ctx context.Context, seen *Record, around Claim, rule func(h Held, now time.Time) (Change, error),
) (*Record, error) {
	if seen == nil {
		return nil, errNoRecord
	}
	around.NodeName = seen.NodeName
	return s.change(ctx, around, rule)
}

// replace stores a record. An ended record with the same machine or Machine UID under another name is
// removed, so that a process whose clock is behind does not find it.
func replace(w Tx, h Held, r *Record, now time.Time) (_ *Record, err error) {
	for _, ended := range []*Record{h.Machine, h.MachineUID} {
		if err == nil && ended != nil && ended.NodeName != r.NodeName && !ended.Live(now) {
			err = w.Drop(ended.NodeName)
		}
	}
	if err != nil {
		return nil, err
	}
	return w.Put(*r)
}

// sweep removes some ended records.
func sweep(w Tx, now time.Time) error {
	due, err := w.Due(now, sweepSize)
	for _, name := range due {
		if err == nil {
			err = w.Drop(name)
		}
	}
	return err
}

// clone copies a record of the store for the caller.
func clone(r *Record, err error) (*Record, error) {
	if err != nil || r == nil {
		return nil, err
	}
	c := *r
	c.Issued = slices.Clone(r.Issued)
	return &c, nil
}

// Reserve claims a node name for a machine; see [Registry].
func (s *storeRegistry) Reserve(ctx context.Context, claim Claim, deadline time.Time) (*Record, error) {
	return s.change(ctx, claim, func(h Held, now time.Time) (Change, error) { return h.Reserve(claim, deadline, now) })
}

// Bind makes a reservation final, and records a certificate; see [Registry].
func (s *storeRegistry) Bind(ctx context.Context, record *Record, lastEnd time.Time, issued *csr.IssuedRecord) (*Record, error) {
	return s.changeSeen(ctx, record, Claim{}, func(h Held, now time.Time) (Change, error) { return h.Bind(record, lastEnd, issued, now) })
}

// Rebind gives a bound record another machine; see [Registry].
func (s *storeRegistry) Rebind(ctx context.Context, record *Record, machine attest.Identity) (*Record, error) {
	return s.changeSeen(ctx, record, Claim{Machine: machine}, func(h Held, now time.Time) (Change, error) {
		return h.Rebind(record, machine, now)
	})
}

// Adopt gives a bound record the UID of another Machine object; see [Registry].
func (s *storeRegistry) Adopt(ctx context.Context, record *Record, machineUID string) (*Record, error) {
	around := Claim{MachineUID: machineUID}
	if record != nil {
		around.Machine = record.Machine
	}
	return s.changeSeen(ctx, record, around, func(h Held, now time.Time) (Change, error) {
		return h.Adopt(record, machineUID, now)
	})
}

// Release frees the record of a Machine that is gone; see [Registry].
func (s *storeRegistry) Release(ctx context.Context, nodeName, machineUID string) (bool, error) {
	released, err := s.change(ctx, Claim{NodeName: nodeName}, func(h Held, now time.Time) (Change, error) { return h.Release(machineUID, now), nil })
	return released != nil, err
}

// find returns a live record, or nil.
func (s *storeRegistry) find(ctx context.Context, by func(r Tx) (*Record, error)) (*Record, error) {
	var out *Record
	err := s.store.View(ctx, func(r Tx) (err error) {
		if out, err = by(r); out != nil && !out.Live(s.now()) {
			out = nil
		}
		return err
	})
	return clone(out, err)
}

// Lookup returns the record of a node name, or nil.
func (s *storeRegistry) Lookup(ctx context.Context, nodeName string) (*Record, error) {
	return s.find(ctx, func(r Tx) (*Record, error) { return r.ByName(nodeName) })
}

// LookupMachine returns the reserved or bound record of a machine, or nil.
func (s *storeRegistry) LookupMachine(ctx context.Context, machine attest.Identity) (*Record, error) {
	return s.find(ctx, func(r Tx) (*Record, error) { return r.ByMachine(machine) })
}

// LookupMachineUID returns the record of a Machine UID, or nil.
func (s *storeRegistry) LookupMachineUID(ctx context.Context, machineUID string) (*Record, error) {
	if machineUID == "" {
		return nil, ctx.Err()
	}
	return s.find(ctx, func(r Tx) (*Record, error) { return r.ByMachineUID(machineUID) })
}

// listSize is the number of records that Records reads at once.
const listSize = 256

// Records yields every live record; see [Registry]. It reads in pieces, so that no writer
// waits for its caller.
func (s *storeRegistry) Records(ctx context.Context) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		for last, more := "", true; more; {
			var records []*Record
			err := s.store.View(ctx, func(r Tx) (err error) {
				records, err = r.After(last, listSize)
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			more = len(records) == listSize
			for _, r := range records {
				last = r.NodeName
				if r.Live(s.now()) && !yield(clone(r, nil)) {
					return
				}
			}
		}
	}
}
