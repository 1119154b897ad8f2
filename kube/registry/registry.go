package registry

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// Registry is a membership.Registry in a cluster's API server. It is safe for use by multiple
// goroutines, and any number of registries of one scope can share the objects. Registries of
// different scopes may share them too: a name that one of them has is refused by the others.
type Registry struct {
	scope  membership.Scope
	reader client.Reader
	stale  client.Reader // may be nil
	writer client.Writer
	now    func() time.Time
	recent recentNodes
}

// Options are the options of [New].
type Options struct {
	// Stale reads the same objects from a cache that may be behind, for [Registry.Stale] and
	// for the pointers of a reservation that is to be bound. Nil means no cache.
	Stale client.Reader
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// New makes a registry. The reader must be live, such as a manager's GetAPIReader: until the
// write, a reader from a cache refuses because of machines that are gone, and admits machines whose
// refusing record it has not seen yet. Reader and writer must know the types of package
// v1alpha1. The error is that of membership.Scope.Check, or refusal.CheckConfig.
func New(scope membership.Scope, reader client.Reader, writer client.Writer, opts Options) (*Registry, error) {
	if err := scope.Check(); err != nil {
		return nil, err
	}
	switch {
	case reader == nil:
		return nil, refusal.Config("reader", "", "one that reads past caches")
	case writer == nil:
		return nil, refusal.Config("writer", "", "one")
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Registry{scope: scope, reader: reader, stale: opts.Stale, writer: writer, now: opts.Now, recent: newRecentNodes()}, nil
}

// Stale returns the registry over Options.Stale, or this one without a cache. It is only for
// look-ups (membership.FirstUseConfig.Stale). A record that they find may be passed to this
// registry's Bind, whose write fails if the record is no longer the latest.
func (r *Registry) Stale() *Registry {
	if r == nil || r.stale == nil {
		return r
	}
	return r.over(r.stale)
}

// over returns the registry over another reader.
func (r *Registry) over(reader client.Reader) *Registry {
	over := *r
	over.reader = reader
	return &over
}

// errNotMade says that a registry has no API server.
var errNotMade = errors.New("registry: a Registry that New did not make")

// check refuses a registry that New did not make, and a context that has ended.
func (r *Registry) check(ctx context.Context) error {
	if r == nil || r.reader == nil {
		return errNotMade
	}
	return ctx.Err()
}

// attempts is how often a call that lost a race looks again. Each time, another replica has made
// progress.
const attempts = 16

// changeTime is how long a change of a bound record may take; it takes three writes.
const changeTime = time.Minute

// Scope returns the scope that the registry was made with.
func (r *Registry) Scope() membership.Scope { return r.scope }

// surroundings are the node, pointers and records that a call is about.
type surroundings struct {
	name *node
	// machine and uid are nil if the call names none.
	machine, uid *pointer
	held         membership.Held
}

func (s *surroundings) pointers() []*pointer {
	var all []*pointer
	for _, p := range []*pointer{s.machine, s.uid} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// newcomer returns the surroundings of a claim whose name, machine and Machine UID are all
// new.
func newcomer(c *membership.Claim) *surroundings {
	s := new(surroundings)
	if c.Machine != "" {
		s.machine = &pointer{kind: byMachine(), identity: string(c.Machine)}
	}
	if c.MachineUID != "" {
		s.uid = &pointer{kind: byMachineUID(), identity: c.MachineUID}
	}
	return s
}

// look reads the surroundings of a claim. Empty fields of the claim are not looked up.
func (r *Registry) look(ctx context.Context, c *membership.Claim) (*surroundings, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	s := new(surroundings)
	if c.NodeName == "" { // no record was given; the rules will notice
		return s, nil
	}
	var err error
	if s.name, err = r.readNode(ctx, c.NodeName); err != nil {
		return nil, err
	}
	if c.Machine != "" {
		if s.machine, err = r.readPointer(ctx, byMachine(), string(c.Machine), s.name); err != nil {
			return nil, err
		}
	}
	if c.MachineUID != "" {
		if s.uid, err = r.readPointer(ctx, byMachineUID(), c.MachineUID, s.name); err != nil {
			return nil, err
		}
	}
	s.held = membership.Held{Machine: s.machine.record(), MachineUID: s.uid.record()}
	if s.name != nil {
		s.held.Name = s.name.record
	}
	return s, r.ownAll(s)
}

// ownAll refuses records that count and are of another scope.
func (r *Registry) ownAll(s *surroundings) error {
	if err := r.own(s.name); err != nil {
		return err
	}
	for _, p := range s.pointers() {
		if p.record() == nil {
			continue
		}
		if err := r.own(p.target); err != nil {
			return err
		}
	}
	return nil
}

// own refuses a record that counts and is of another scope.
func (r *Registry) own(n *node) error {
	if n == nil || n.object.Spec.Scope == r.scope.String() || !n.record.Live(r.now()) {
		return nil
	}
	return &attest.Error{Check: membership.CheckRegistryScope,
		Got: "node " + n.object.Name + ", recorded as " + refusal.Text(n.object.Spec.Scope), Want: r.scope.String()}
}

// Reserve claims a node name for a machine; see membership.Registry. It writes the node's
// object and each pointer. A bound record whose pointer was deleted gets it back.
//
// At first it reads nothing: it creates the objects, and each can only be created if it does
// not exist. If one exists, Reserve looks.
func (r *Registry) Reserve(ctx context.Context, claim membership.Claim, deadline time.Time) (*membership.Record, error) {
	if err := cmp.Or(r.check(ctx), claim.Check()); err != nil {
		return nil, err
	}
	var mine *node
	s := newcomer(&claim)
	for range attempts {
		n, err := r.reserve(ctx, s, &claim, deadline, &mine)
		if err == nil {
			n.complete = true
			r.recent.add(n)
			return clone(n.record), nil
		}
		if errors.Is(err, errSwapped) {
			if s, err = r.look(ctx, &claim); err == nil {
				continue
			}
		}
		if refused(err) && mine != nil {
			_ = r.remove(ctx, mine.object) // otherwise it lapses at its deadline
		}
		return nil, err
	}
	if mine != nil {
		_ = r.remove(ctx, mine.object)
	}
	return nil, conflict("a record of node "+claim.NodeName+" that others change all the time", "one that stays")
}

// reserve tries once. mine is the reservation that this call has made so far.
func (r *Registry) reserve(ctx context.Context, s *surroundings, claim *membership.Claim, deadline time.Time, mine **node) (*node, error) {
	change, err := s.held.Reserve(*claim, deadline, r.now())
	if err != nil {
		return nil, err
	}
	n := s.name
	again := *mine != nil && n != nil && n.record.Version == (*mine).record.Version
	if change.Put && !again {
		old := s.name
		if old != nil && old.record.State == membership.StateBound && change.Record.State == membership.StateReserved {
			if err := r.removeOver(ctx, old, claim); err != nil {
				return nil, err
			}
			old = nil
		}
		if n, err = r.put(ctx, old, change.Record); err != nil {
			return nil, err
		}
	}
	if n.record.State == membership.StateReserved {
		*mine = n
	}
	for _, p := range s.pointers() {
		if n.record.State == membership.StateBound && p.pointsTo(claim.NodeName) {
			continue
		}
		if err := r.point(ctx, p, n); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// removeOver removes a bound record that is over, and the pointers that the claim does not take.
func (r *Registry) removeOver(ctx context.Context, over *node, claim *membership.Claim) error {
	if err := r.remove(ctx, over.object); err != nil {
		return err
	}
	for _, kind := range []pointerKind{byMachine(), byMachineUID()} {
		if identity := kind.of(&over.record.Claim); identity != kind.of(claim) {
			r.forget(ctx, kind, identity, claim.NodeName)
		}
	}
	return nil
}

func clone(record *membership.Record) *membership.Record {
	c := *record
	c.Issued = slices.Clone(record.Issued)
	return &c
}

// seenName returns the claim for a record that the caller saw, which may be nil.
func seenName(seen *membership.Record) *membership.Claim {
	if seen == nil {
		return new(membership.Claim)
	}
	return &membership.Claim{NodeName: seen.NodeName}
}

// Rebind gives a bound record another machine; see membership.Registry. It takes three writes.
// If it is interrupted, it lapses after a minute, or is finished by the next call.
func (r *Registry) Rebind(ctx context.Context, seen *membership.Record, machine attest.Identity) (*membership.Record, error) {
	around := seenName(seen)
	around.Machine = machine
	return r.replace(ctx, seen, around, func(h membership.Held, now time.Time) (membership.Change, error) {
		return h.Rebind(seen, machine, now)
	})
}

// Adopt gives a bound or resting record the UID of another Machine object; see membership.Registry. Like
// Rebind, it takes three writes, and one more for a resting record, whose machine may have no pointer.
func (r *Registry) Adopt(ctx context.Context, seen *membership.Record, machineUID string) (*membership.Record, error) {
	around := seenName(seen)
	around.MachineUID = machineUID
	if seen != nil {
		around.Machine = seen.Machine
	}
	return r.replace(ctx, seen, around, func(h membership.Held, now time.Time) (membership.Change, error) {
		return h.Adopt(seen, machineUID, now)
	})
}

// replace gives a record another identity, or makes a resting one bound again.
func (r *Registry) replace(ctx context.Context, seen *membership.Record, around *membership.Claim,
	rule func(h membership.Held, now time.Time) (membership.Change, error),
) (*membership.Record, error) {
	s, err := r.look(ctx, around)
	if err != nil {
		return nil, err
	}
	now := r.now()
	change, err := rule(s.held, now)
	if err != nil {
		return nil, err
	}
	if !change.Put {
		return clone(change.Record), nil
	}
	old, object := &s.name.record.Claim, s.name.object.DeepCopy()
	changed := slices.DeleteFunc(s.pointers(), func(p *pointer) bool {
		return s.name.record.State == membership.StateBound && p.kind.of(old) == p.identity
	})
	object.Spec.Pending = &v1alpha1.PendingChange{Deadline: *timeIn(now.Add(changeTime))}
	for _, p := range changed {
		*p.kind.pending(object.Spec.Pending) = p.identity
	}
	begun, err := r.store(ctx, object)
	if err != nil {
		return nil, lost(err, seen.NodeName)
	}
	for _, p := range changed {
		if err := r.point(ctx, p, begun); err != nil {
			object = begun.object.DeepCopy()
			object.Spec.Pending = nil
			_ = r.write(ctx, object) // otherwise it lapses at its deadline
			return nil, lost(err, seen.NodeName)
		}
	}
	n, err := r.put(ctx, begun, change.Record)
	if err != nil {
		return nil, lost(err, seen.NodeName)
	}
	for _, p := range changed {
		r.forget(ctx, p.kind, p.kind.of(old), seen.NodeName)
	}
	return clone(n.record), nil
}

// Release removes the record of a Machine that is gone; see membership.Registry. A record of
// another scope is left alone.
func (r *Registry) Release(ctx context.Context, nodeName, machineUID string) (bool, error) {
	for range attempts {
		released, err := r.release(ctx, nodeName, machineUID)
		if !errors.Is(err, errSwapped) {
			return released, err
		}
	}
	return false, conflict("a record of node "+nodeName+" that others change all the time", "one that stays")
}

func (r *Registry) release(ctx context.Context, nodeName, machineUID string) (bool, error) {
	if err := r.check(ctx); err != nil {
		return false, err
	}
	n, err := r.readNode(ctx, nodeName)
	if err != nil || n == nil || r.own(n) != nil {
		return false, err
	}
	change := membership.Held{Name: n.record}.Release(machineUID, r.now())
	switch {
	case change.Put:
		_, err = r.put(ctx, n, change.Record)
	case change.Drop:
		err = r.remove(ctx, n.object)
	default:
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, kind := range []pointerKind{byMachine(), byMachineUID()} {
		r.forget(ctx, kind, kind.of(&n.record.Claim), nodeName)
	}
	return true, nil
}
