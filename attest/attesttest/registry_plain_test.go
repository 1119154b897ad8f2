package attesttest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// plainRegistry is a second implementation of the contract, as plain as it can be,
// that can be told to get one thing wrong.
type plainRegistry struct {
	fault string
	now   func() time.Time

	mu      sync.Mutex
	records []*attest.RegistryRecord
	last    int
}

func (p *plainRegistry) is(fault string) bool { return p.fault == fault }

func (p *plainRegistry) Scope() attest.RegistryScope {
	if p.is("no scope") {
		return attest.RegistryScope{Road: attest.RoadEK}
	}
	return attest.RegistryScope{Road: attest.RoadAK}
}

func refusal(check attest.Check) error { return &attest.Error{Check: check} }
func later(check attest.Check) error   { return &attest.Error{Check: check, Err: csr.ErrRetry} }

// enter begins every call but that of a registry which forgets to.
func (p *plainRegistry) enter(ctx context.Context) error {
	if ctx.Err() != nil && !p.is("context ignored") {
		return ctx.Err()
	}
	p.mu.Lock()
	return nil
}

func (p *plainRegistry) leave() { p.mu.Unlock() }

// sweep drops what counts no more.
func (p *plainRegistry) sweep() {
	now := p.now()
	p.records = slices.DeleteFunc(slices.Clone(p.records), func(r *attest.RegistryRecord) bool {
		switch {
		case r.State == attest.RecordReserved && p.is("reservations without end"):
			return false
		case r.State == attest.RecordReserved && p.is("deadline a second late"):
			return now.After(r.Deadline)
		case r.State == attest.RecordReserved && p.is("deadline a second early"):
			return !now.Add(time.Second).Before(r.Deadline)
		case r.State == attest.RecordReserved:
			return !now.Before(r.Deadline)
		case r.State == attest.RecordResting && p.is("rests a second too short"):
			return !now.Before(r.LastEnd)
		case r.State == attest.RecordResting && p.is("rests for ever"):
			return false
		case r.State == attest.RecordResting:
			return now.After(r.LastEnd)
		case r.State == attest.RecordBound && p.is("bound records end"):
			return now.After(p.now().Add(-time.Hour)) && r.LastEnd.IsZero() && now.Year() > 2031
		}
		return false
	})
}

func (p *plainRegistry) named(name string) *attest.RegistryRecord {
	p.sweep()
	for _, r := range p.records {
		if r.NodeName == name {
			return r
		}
	}
	return nil
}

func (p *plainRegistry) ofMachine(m attest.Identity) *attest.RegistryRecord {
	p.sweep()
	for _, r := range p.records {
		if r.Machine == m && r.State != attest.RecordResting {
			return r
		}
	}
	return nil
}

// store replaces the record of a name; nil takes it away.
func (p *plainRegistry) store(name string, r *attest.RegistryRecord) *attest.RegistryRecord {
	p.records = slices.DeleteFunc(slices.Clone(p.records), func(old *attest.RegistryRecord) bool { return old.NodeName == name })
	if r == nil {
		return nil
	}
	c := *r
	p.last++
	switch {
	case p.is("versions of content"):
		c.Version = c.NodeName + "/" + string(c.State) + c.LastEnd.String() + string(c.Machine)
	case p.is("no versions"):
		c.Version = ""
	default:
		c.Version = strconv.Itoa(p.last)
	}
	p.records = append(p.records, &c)
	return p.out(&c)
}

func (p *plainRegistry) out(r *attest.RegistryRecord) *attest.RegistryRecord {
	if r == nil || p.is("no copies") {
		return r
	}
	c := *r
	return &c
}

func (p *plainRegistry) valid(c attest.RegistryClaim) error {
	if p.is("arguments unchecked") {
		return nil
	}
	probe, err := attest.NewMemoryRegistry(attest.RegistryScope{Road: attest.RoadAK}, p.now)
	if err == nil {
		_, err = probe.Reserve(context.Background(), c, p.now().Add(time.Minute))
	}
	return err
}

func (p *plainRegistry) Reserve(ctx context.Context, c attest.RegistryClaim, deadline time.Time) (*attest.RegistryRecord, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.valid(c); err != nil {
		return nil, err
	}
	if d := deadline.Sub(p.now()); !p.is("deadline unchecked") && (d <= 0 || d > attest.MaxReservation) {
		return nil, errors.New("bad deadline")
	}
	r := p.named(c.NodeName)
	if err := p.nameTaken(r, c); err != nil {
		return nil, err
	}
	if err := p.machineTaken(c); err != nil {
		if p.is("refused claims stay") && r == nil {
			p.store(c.NodeName, &attest.RegistryRecord{RegistryClaim: c, State: attest.RecordReserved, Deadline: deadline})
		}
		return nil, err
	}
	if r != nil && r.State == attest.RecordBound && !p.is("bound records are reserved again") {
		if r.ProviderID != c.ProviderID && !p.is("provider ID not filled in") {
			filled := *r
			filled.ProviderID = c.ProviderID
			return p.store(c.NodeName, &filled), nil
		}
		return p.out(r), nil
	}
	if r != nil && p.is("deadline not renewed") {
		return p.out(r), nil
	}
	return p.store(c.NodeName, &attest.RegistryRecord{RegistryClaim: c, State: attest.RecordReserved, Deadline: deadline}), nil
}

func (p *plainRegistry) nameTaken(r *attest.RegistryRecord, c attest.RegistryClaim) error {
	switch {
	case r == nil:
		return nil
	case r.State == attest.RecordResting && p.is("rest for others alone") && r.Machine == c.Machine:
		return nil
	case r.State == attest.RecordResting:
		return refusal(attest.CheckRegistryResting)
	case r.Machine != c.Machine && r.State == attest.RecordReserved && p.is("reservations are taken over"):
		return nil
	case r.Machine != c.Machine && r.State == attest.RecordReserved && p.is("reservations are for good"):
		return refusal(attest.CheckRegistryReserved)
	case r.Machine != c.Machine && r.State == attest.RecordReserved:
		return later(attest.CheckRegistryReserved)
	case r.Machine != c.Machine && p.is("names are taken over"):
		return nil
	case r.Machine != c.Machine:
		return refusal(attest.CheckRegistryName)
	case r.MachineUID != c.MachineUID && !p.is("UID ignored"):
		return refusal(attest.CheckRegistryUID)
	case r.ProviderID != "" && r.ProviderID != c.ProviderID && !p.is("provider ID ignored"):
		return refusal(attest.CheckRegistryProviderID)
	}
	return nil
}

func (p *plainRegistry) machineTaken(c attest.RegistryClaim) error {
	r := p.ofMachine(c.Machine)
	switch {
	case r == nil || r.NodeName == c.NodeName || p.is("machines have many names"):
		return nil
	case r.State == attest.RecordReserved:
		return later(attest.CheckRegistryReserved)
	}
	return refusal(attest.CheckRegistryMachine)
}

func (p *plainRegistry) current(seen *attest.RegistryRecord) (*attest.RegistryRecord, error) {
	if seen == nil {
		return nil, errors.New("no record")
	}
	r := p.named(seen.NodeName)
	if r == nil || r.Version != seen.Version && !p.is("versions ignored") {
		return nil, later(attest.CheckRegistryConflict)
	}
	return r, nil
}

func (p *plainRegistry) change(ctx context.Context, seen *attest.RegistryRecord, f func(r *attest.RegistryRecord) error) (*attest.RegistryRecord, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	old, err := p.current(seen)
	if err != nil {
		return nil, err
	}
	r := *old
	if err := f(&r); err != nil || r == *old {
		return p.out(old), err
	}
	return p.store(r.NodeName, &r), nil
}

func (p *plainRegistry) Bind(ctx context.Context, seen *attest.RegistryRecord) (*attest.RegistryRecord, error) {
	return p.change(ctx, seen, func(r *attest.RegistryRecord) error {
		if r.State == attest.RecordResting {
			return later(attest.CheckRegistryConflict)
		}
		r.State, r.Deadline = attest.RecordBound, time.Time{}
		return nil
	})
}

func (p *plainRegistry) Raise(ctx context.Context, seen *attest.RegistryRecord, end time.Time) (*attest.RegistryRecord, error) {
	return p.change(ctx, seen, func(r *attest.RegistryRecord) error {
		if r.State != attest.RecordBound && !p.is("reservations can be raised") {
			return later(attest.CheckRegistryConflict)
		}
		if !p.is("last end rounded down") {
			end = end.Add(time.Second - time.Nanosecond)
		}
		if end = end.Truncate(time.Second).UTC(); end.After(r.LastEnd) || p.is("last end lowered") {
			r.LastEnd = end
		}
		return nil
	})
}

func (p *plainRegistry) Rebind(ctx context.Context, seen *attest.RegistryRecord, m attest.Identity) (*attest.RegistryRecord, error) {
	return p.change(ctx, seen, func(r *attest.RegistryRecord) error {
		if r.State != attest.RecordBound {
			return later(attest.CheckRegistryConflict)
		}
		c := r.RegistryClaim
		c.Machine = m
		if err := p.valid(c); err != nil {
			return err
		}
		if err := p.machineTaken(c); err != nil && !p.is("rebind takes others' machines") {
			return err
		}
		r.Machine = m
		if p.is("rebind forgets the last end") {
			r.LastEnd = time.Time{}
		}
		return nil
	})
}

func (p *plainRegistry) Release(ctx context.Context, name, uid string) error {
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	r := p.named(name)
	switch {
	case r == nil || r.State == attest.RecordResting:
		if p.is("release twice fails") {
			return errors.New("no record")
		}
		return nil
	case r.MachineUID != uid && !p.is("release of any UID"):
		return nil
	case r.State == attest.RecordReserved || r.LastEnd.Before(p.now()) || p.is("no rest"):
		p.store(name, nil)
		return nil
	}
	resting := *r
	resting.State = attest.RecordResting
	p.store(name, &resting)
	return nil
}

func (p *plainRegistry) Lookup(ctx context.Context, name string) (*attest.RegistryRecord, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.out(p.named(name)), nil
}

func (p *plainRegistry) LookupMachine(ctx context.Context, m attest.Identity) (*attest.RegistryRecord, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.out(p.ofMachine(m)), nil
}
