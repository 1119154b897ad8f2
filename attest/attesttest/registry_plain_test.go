package attesttest

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// plainRegistry is a second implementation of the contract, as plain as it can be,
// that can be told to get one thing wrong.
type plainRegistry struct {
	fault string
	now   func() time.Time

	mu      sync.Mutex
	records []*membership.Record
	last    int
}

func (p *plainRegistry) is(fault string) bool { return p.fault == fault }

func (p *plainRegistry) Scope() membership.Scope {
	if p.is("no scope") {
		return membership.Scope{Cluster: "test", Road: attest.RoadEK}
	}
	return membership.Scope{Cluster: "test", Road: attest.RoadAK}
}

func refused(check attest.Check) error { return &attest.Error{Check: check} }
func later(check attest.Check) error   { return &attest.Error{Check: check, Err: refusal.ErrRetry} }

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
	p.records = slices.DeleteFunc(slices.Clone(p.records), func(r *membership.Record) bool {
		switch {
		case r.State == membership.StateReserved && p.is("reservations without end"):
			return false
		case r.State == membership.StateReserved && p.is("deadline a second late"):
			return now.After(r.Deadline)
		case r.State == membership.StateReserved && p.is("deadline a second early"):
			return !now.Add(time.Second).Before(r.Deadline)
		case r.State == membership.StateReserved:
			return !now.Before(r.Deadline)
		case r.State == membership.StateResting && p.is("rests a second too short"):
			return !now.Before(r.LastEnd)
		case r.State == membership.StateResting && p.is("rests for ever"):
			return false
		case r.State == membership.StateResting:
			return now.After(r.LastEnd)
		case r.State == membership.StateBound && p.is("bound records end"):
			return now.After(p.now().Add(-time.Hour)) && r.LastEnd.IsZero() && now.Year() > 2031
		}
		return false
	})
}

func (p *plainRegistry) named(name string) *membership.Record {
	p.sweep()
	for _, r := range p.records {
		if r.NodeName == name {
			return r
		}
	}
	return nil
}

func (p *plainRegistry) ofMachine(m attest.Identity) *membership.Record {
	p.sweep()
	for _, r := range p.records {
		if r.Machine == m && r.State != membership.StateResting {
			return r
		}
	}
	return nil
}

// store replaces the record of a name; nil takes it away.
func (p *plainRegistry) store(name string, r *membership.Record) *membership.Record {
	p.records = slices.DeleteFunc(slices.Clone(p.records), func(old *membership.Record) bool { return old.NodeName == name })
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

func (p *plainRegistry) out(r *membership.Record) *membership.Record {
	if r == nil || p.is("no copies") {
		return r
	}
	c := *r
	c.Issued = slices.Clone(r.Issued)
	return &c
}

func (p *plainRegistry) valid(c membership.Claim) error {
	if p.is("arguments unchecked") {
		return nil
	}
	probe, err := membership.NewMemoryRegistry(membership.Scope{Cluster: "test", Road: attest.RoadAK}, membership.RegistryOptions{Now: p.now})
	if err == nil {
		_, err = probe.Reserve(context.Background(), c, p.now().Add(time.Minute))
	}
	return err
}

func (p *plainRegistry) Reserve(ctx context.Context, c membership.Claim, deadline time.Time) (*membership.Record, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	if err := p.valid(c); err != nil {
		return nil, err
	}
	if d := deadline.Sub(p.now()); !p.is("deadline unchecked") && (d <= 0 || d > time.Hour) {
		return nil, errors.New("bad deadline")
	}
	r := p.named(c.NodeName)
	if r != nil && p.over(r, c.Over) {
		r = nil
	}
	c.Over = ""
	if err := p.nameTaken(r, c); err != nil {
		return nil, err
	}
	if err := errors.Join(p.machineTaken(c), p.uidTaken(c)); err != nil {
		if p.is("refused claims stay") && r == nil {
			p.store(c.NodeName, &membership.Record{Claim: c, State: membership.StateReserved, Deadline: deadline})
		}
		return nil, err
	}
	if r != nil && r.State == membership.StateBound && !p.is("bound records are reserved again") {
		if r.ProviderID == "" && c.ProviderID != "" && !p.is("provider ID not filled in") {
			filled := *r
			filled.ProviderID = c.ProviderID
			return p.store(c.NodeName, &filled), nil
		}
		return p.out(r), nil
	}
	if r != nil && p.is("deadline not renewed") {
		return p.out(r), nil
	}
	return p.store(c.NodeName, &membership.Record{Claim: c, State: membership.StateReserved, Deadline: deadline}), nil
}

// over reports whether a record is over in the version that a claim names.
func (p *plainRegistry) over(r *membership.Record, version string) bool {
	ended := p.now().After(r.LastEnd) && r.State == membership.StateBound
	switch {
	case p.is("nothing is over"):
		return false
	case p.is("any version is over"):
		return version != "" && ended && !r.LastEnd.IsZero()
	case p.is("over without certificates"):
		return version == r.Version && ended
	case p.is("over before the end"):
		return version == r.Version && r.State == membership.StateBound && !r.LastEnd.IsZero()
	}
	return version == r.Version && ended && !r.LastEnd.IsZero()
}

// sameProviderID compares provider IDs, without case where they are Azure's.
func (p *plainRegistry) sameProviderID(a, b string) bool {
	return a == b || (strings.HasPrefix(a, "azure://") || p.is("no provider ID has case")) && !p.is("provider IDs have case") && strings.EqualFold(a, b)
}

func (p *plainRegistry) nameTaken(r *membership.Record, c membership.Claim) error {
	switch {
	case r == nil:
		return nil
	case r.State == membership.StateResting && p.is("rest for others alone") && r.Machine == c.Machine:
		return nil
	case r.State == membership.StateResting:
		return refused(membership.CheckRegistryResting)
	case r.Machine != c.Machine && r.State == membership.StateReserved && p.is("reservations are taken over"):
		return nil
	case r.Machine != c.Machine && r.State == membership.StateReserved && p.is("reservations are for good"):
		return refused(attest.Check("registry-reserved"))
	case r.Machine != c.Machine && r.State == membership.StateReserved:
		return later(attest.Check("registry-reserved"))
	case r.Machine != c.Machine && p.is("names are taken over"):
		return nil
	case r.Machine != c.Machine:
		return refused(attest.Check("registry-name"))
	case r.MachineUID != c.MachineUID && !p.is("UID ignored"):
		return refused(attest.Check("registry-machine-uid"))
	case r.ProviderID != "" && c.ProviderID == "" && !p.is("provider ID ignored"):
		return later(attest.Check("registry-provider-id"))
	case r.ProviderID != "" && !p.sameProviderID(r.ProviderID, c.ProviderID) && !p.is("provider ID ignored"):
		return refused(attest.Check("registry-provider-id"))
	}
	return nil
}

func (p *plainRegistry) machineTaken(c membership.Claim) error {
	r := p.ofMachine(c.Machine)
	switch {
	case r == nil || r.NodeName == c.NodeName || p.is("machines have many names"):
		return nil
	case r.State == membership.StateReserved:
		return later(attest.Check("registry-reserved"))
	}
	return refused(attest.Check("registry-machine"))
}

func (p *plainRegistry) uidTaken(c membership.Claim) error {
	r := p.ofUID(c.MachineUID)
	switch {
	case r == nil || r.NodeName == c.NodeName || p.is("Machines have many names"):
		return nil
	case r.State == membership.StateReserved:
		return later(attest.Check("registry-reserved"))
	case r.State == membership.StateResting && p.is("Machine UIDs do not rest"):
		return nil
	}
	return refused(attest.Check("registry-machine-uid"))
}

func (p *plainRegistry) ofUID(uid string) *membership.Record {
	p.sweep()
	for _, r := range p.records {
		if r.MachineUID == uid && (uid != "" || p.is("no UID is one UID")) {
			return r
		}
	}
	return nil
}

func (p *plainRegistry) current(seen *membership.Record) (*membership.Record, error) {
	if seen == nil {
		return nil, errors.New("no record")
	}
	r := p.named(seen.NodeName)
	if r == nil || r.Version != seen.Version && !p.is("versions ignored") {
		return nil, later(membership.CheckRegistryConflict)
	}
	return r, nil
}

func (p *plainRegistry) change(ctx context.Context, seen *membership.Record, f func(r *membership.Record) error) (*membership.Record, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	old, err := p.current(seen)
	if err != nil {
		return nil, err
	}
	r := *old
	r.Issued = slices.Clone(old.Issued)
	if err := f(&r); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(&r, old) {
		return p.out(old), nil
	}
	return p.store(r.NodeName, &r), nil
}

func (p *plainRegistry) Bind(ctx context.Context, seen *membership.Record, end time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	return p.change(ctx, seen, func(r *membership.Record) error {
		if r.State == membership.StateResting {
			return later(membership.CheckRegistryConflict)
		}
		first := r.State == membership.StateReserved
		r.State, r.Deadline = membership.StateBound, time.Time{}
		if !end.IsZero() && !(first && p.is("bound without a last end")) {
			if !p.is("last end rounded down") {
				end = end.Add(time.Second - time.Nanosecond)
			}
			if end = end.Truncate(time.Second).UTC(); end.After(r.LastEnd) || p.is("last end lowered") {
				r.LastEnd = end
			}
		}
		if issued == nil || first && p.is("bound without a certificate") {
			return nil
		}
		return p.issue(r, *issued)
	})
}

// issue adds a certificate to a record, or a request.
func (p *plainRegistry) issue(r *membership.Record, c csr.IssuedRecord) error {
	if (c.NodeName != r.NodeName || c.Machine != string(r.Machine) || c.MachineUID != r.MachineUID) && !p.is("certificates of others") {
		return refused(attest.Check("registry-claim"))
	}
	if c.NotAfter.IsZero() || c.NotAfter.After(r.LastEnd) && !p.is("certificates beyond the last end") {
		return refused(attest.Check("registry-claim"))
	}
	var kept []csr.IssuedRecord
	for i, o := range r.Issued {
		if o.CredentialID == c.CredentialID && c.CredentialID != "" && (o.NodeUID == "" || p.is("Node UIDs change")) && !p.is("Node UIDs stay out") {
			r.Issued[i].NodeUID = c.NodeUID
		}
		same := o.RequestUID == c.RequestUID && o.SPKIHash == c.SPKIHash
		switch {
		case o.CredentialID != "" && o.CredentialID == c.CredentialID, same && c.CredentialID == "" && !p.is("requests are recorded again"):
			return nil
		case same && o.CredentialID == "" && !p.is("requests stay"), p.now().After(o.NotAfter) && !p.is("certificates for ever"):
			continue
		}
		kept = append(kept, o)
	}
	kept = append(kept, c)
	slices.SortStableFunc(kept, func(a, b csr.IssuedRecord) int { return a.NotAfter.Compare(b.NotAfter) })
	if len(kept) > membership.MaxIssued && !p.is("certificates without number") {
		n := p.forgets(kept, c)
		kept = slices.Delete(kept, n, n+1)
	}
	r.Issued = kept
	return nil
}

// forgets is the certificate that makes room.
func (p *plainRegistry) forgets(kept []csr.IssuedRecord, newest csr.IssuedRecord) int {
	if p.is("forgets what ends first") {
		return 0
	}
	filed := func(o csr.IssuedRecord) (next []csr.IssuedRecord) {
		for _, other := range kept {
			if o.CredentialID != "" && other.FiledWith == o.CredentialID {
				next = append(next, other)
			}
		}
		return next
	}
	var rest []csr.IssuedRecord
	for i, o := range kept {
		next := filed(o)
		switch replaced := slices.ContainsFunc(next, func(other csr.IssuedRecord) bool { return len(filed(other)) > 0 }); {
		case o == newest:
		case replaced && !p.is("forgets nothing replaced"):
			return i
		case len(next) == 0 || p.is("forgets what has filed"):
			rest = append(rest, o)
		}
	}
	slices.SortStableFunc(rest, func(a, b csr.IssuedRecord) int { return a.NotBefore.Compare(b.NotBefore) })
	most := func(same func(a, b csr.IssuedRecord) bool) (group []csr.IssuedRecord) {
		for _, o := range rest {
			var these []csr.IssuedRecord
			for _, other := range rest {
				if same(o, other) {
					these = append(these, other)
				}
			}
			if len(these) > len(group) || len(these) == len(group) && !p.is("forgets what came first") {
				group = these
			}
		}
		return group
	}
	group := most(func(a, b csr.IssuedRecord) bool { return a.RequestUID == b.RequestUID && a.SPKIHash == b.SPKIHash })
	if len(group) == 1 {
		group = most(func(a, b csr.IssuedRecord) bool {
			return a.FiledWith == b.FiledWith || p.is("forgets whatever it was filed with")
		})
	}
	middle := len(group) / 2
	if p.is("forgets the oldest") {
		middle = 0
	}
	return slices.Index(kept, group[middle])
}

func (p *plainRegistry) Rebind(ctx context.Context, seen *membership.Record, m attest.Identity) (*membership.Record, error) {
	return p.change(ctx, seen, func(r *membership.Record) error {
		if r.State != membership.StateBound {
			return later(membership.CheckRegistryConflict)
		}
		c := r.Claim
		c.Machine = m
		if err := p.valid(c); err != nil {
			return err
		}
		if err := p.machineTaken(c); err != nil && !p.is("rebind takes others' machines") {
			return err
		}
		if r.Machine != m && !p.is("rebind keeps certificates") {
			r.Issued = nil
		}
		if r.Machine != m && !p.is("rebind keeps the provider ID") {
			r.ProviderID = ""
		}
		r.Machine = m
		if p.is("rebind forgets the last end") {
			r.LastEnd = time.Time{}
		}
		return nil
	})
}

func (p *plainRegistry) Adopt(ctx context.Context, seen *membership.Record, uid string) (*membership.Record, error) {
	return p.change(ctx, seen, func(r *membership.Record) error {
		if r.State == membership.StateReserved || r.State == membership.StateResting && p.is("adopt takes nothing back") {
			return later(membership.CheckRegistryConflict)
		}
		if r.State == membership.StateResting && r.MachineUID == uid && !p.is("adopt takes back a Machine that is gone") {
			return refused(attest.Check("registry-machine-uid"))
		}
		c := r.Claim
		c.MachineUID = uid
		if uid == "" && !p.is("adopts nothing") {
			return errors.New("no UID")
		}
		if len(uid) > 253 && !p.is("arguments unchecked") {
			return errors.New("long UID")
		}
		if err := p.uidTaken(c); err != nil && !p.is("adopt takes others' Machines") {
			return err
		}
		if err := p.machineTaken(c); err != nil && !p.is("adopt takes back others' machines") {
			return err
		}
		r.MachineUID, r.State = uid, membership.StateBound
		for i := range r.Issued {
			r.Issued[i].MachineUID = uid
		}
		if p.is("adopt forgets the last end") {
			r.LastEnd = time.Time{}
		}
		return nil
	})
}

func (p *plainRegistry) Release(ctx context.Context, name, uid string) (bool, error) {
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	r := p.named(name)
	switch {
	case r == nil || r.State == membership.StateResting:
		if p.is("release twice fails") {
			return false, errors.New("no record")
		}
		return p.is("releases nothing and says so not"), nil
	case r.MachineUID != uid && !p.is("release of any UID") && (uid != "" || !p.is("release of no UID")):
		return false, nil
	case r.State == membership.StateReserved || r.LastEnd.Before(p.now()) || p.is("no rest"):
		p.store(name, nil)
		return !p.is("releases in silence"), nil
	}
	resting := *r
	resting.State, resting.Issued = membership.StateResting, nil
	p.store(name, &resting)
	return true, nil
}

func (p *plainRegistry) Records(ctx context.Context) iter.Seq2[*membership.Record, error] {
	return func(yield func(*membership.Record, error) bool) {
		if err := p.enter(ctx); err != nil {
			yield(nil, err)
			return
		}
		if !p.is("lists what has ended") {
			p.sweep()
		}
		all := p.records
		p.leave()
		switch {
		case p.is("lists one piece"):
			all = all[:min(256, len(all))]
		case p.is("lists twice") && len(all) > 1:
			all = append(all[:1:1], all...)
		case p.is("lists what is bound"):
			all = slices.DeleteFunc(slices.Clone(all), func(r *membership.Record) bool { return r.State != membership.StateBound })
		case p.is("lists nil"):
			all = append(slices.Clone(all), nil)
		}
		for _, r := range all {
			if p.is("lists its own") {
				if !yield(r, nil) {
					return
				}
			} else if !yield(p.out(r), nil) {
				return
			}
		}
	}
}

func (p *plainRegistry) Lookup(ctx context.Context, name string) (*membership.Record, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.out(p.named(name)), nil
}

func (p *plainRegistry) LookupMachine(ctx context.Context, m attest.Identity) (*membership.Record, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.out(p.ofMachine(m)), nil
}

func (p *plainRegistry) LookupMachineUID(ctx context.Context, uid string) (*membership.Record, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	return p.out(p.ofUID(uid)), nil
}
