package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Slots admits machines of MachinePools, each to a slot of its pool: a Machine UID of the form
// <UID of the MachinePool>/<identity of the machine>. At most spec.replicas slots of a pool are held. A
// record holds its slot until its last certificate has ended, and a reservation until its deadline; fifteen
// minutes are added to both, so that a clock that is ahead by less frees no slot.
//
// Slots are counted in a list of all AttestedNodes, before a name is reserved and again before it is bound: of
// two processes that reserve the last slot at once, the one with the later reservation waits. Within a process
// the reservations of one pool are made one after the other.
//
// A slot is for an identity: a TPM whose vendor certified two EKs of the registry's algorithm (membership.Scope)
// can hold two.
//
// A pool that is shut gives no slot, and its nodes keep theirs ([Pools], which Config has to have).
//
// Set it in Config.Slots, and have [Slots.FirstUse] change the configuration of each membership.FirstUse that
// admits machines of the inventory.
type Slots struct {
	// Nodes reads AttestedNodes of the workload cluster past caches. It takes list on them.
	Nodes client.Reader
	// Metrics gets the metric of slots, which the leader counts each minute; nil means none.
	Metrics prometheus.Registerer
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	inventory *Inventory // set by New
	locks     sync.Map   // of *sync.Mutex, by the UIDs of pools
}

// slotSlack is for how long a record holds its slot after it has ended.
const slotSlack = 15 * time.Minute

// slotSeparator stands between the parts of a slot. No UID of an API server has it.
const slotSeparator = "/"

// slotOf returns the pool of a Machine UID that is a slot.
func slotOf(machineUID string) (pool types.UID, ok bool) {
	uid, _, ok := strings.Cut(machineUID, slotSeparator)
	return types.UID(uid), ok && uid != ""
}

// FirstUse returns a configuration that names the slots of machines and counts them: with Slot, and with a
// Registry around that of c. Nil Slots change nothing.
func (s *Slots) FirstUse(c membership.FirstUseConfig) membership.FirstUseConfig {
	if s != nil && c.Registry != nil {
		c.Slot, c.Registry = s.slot, &slotRegistry{c.Registry, s}
	}
	return c
}

func (s *Slots) ready() error {
	if s == nil || s.inventory == nil || s.Nodes == nil {
		return errNotMade
	}
	return nil
}

func (s *Slots) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// lock is held while a slot of one pool is counted and taken.
func (s *Slots) lock(pool types.UID) *sync.Mutex {
	lock, _ := s.locks.LoadOrStore(pool, new(sync.Mutex))
	return lock.(*sync.Mutex)
}

// slot is a membership.FirstUseConfig.Slot. A node that has a record of the pool and of this machine keeps the
// slot in it: after kubectl nodeattest rebind, that is named after the former machine.
func (s *Slots) slot(ctx context.Context, r *attest.Result) (string, error) {
	if err := s.ready(); err != nil {
		return "", err
	}
	if r.Checked() == nil || r.Checked().Machine() == nil {
		return "", attest.NotMember("a result without a Machine")
	}
	p, err := s.inventory.poolOf(ctx, r)
	if err == nil && p == nil {
		err = errors.New("clusterapi: the Machine of the request has a UID")
	}
	if err != nil {
		return "", refuseSlot(err)
	}
	holds, err := s.holds(ctx, p.GetUID())
	if err != nil {
		return "", err
	}
	claim := membership.Claim{NodeName: r.NodeName, Machine: r.Machine, MachineUID: string(p.GetUID()) + slotSeparator + string(r.Machine), ProviderID: r.Granted.ProviderID}
	for n := range holds {
		if of := holds[n].claim; of.NodeName == claim.NodeName && of.Machine == claim.Machine {
			claim.MachineUID = of.MachineUID
		}
	}
	return claim.MachineUID, holds.admit(p, &claim, s.closed(ctx, p))
}

// refuseSlot has a pool that is not found refuse the machine.
func refuseSlot(err error) error {
	if errors.Is(err, csr.ErrNoMachine) {
		return attest.NotMember(err.Error())
	}
	return err
}

// hold is a record that holds a slot of a pool.
type hold struct {
	claim   membership.Claim
	state   membership.State
	version string // of the object, comparable
	record  string // the record's version
}

type holds []hold

// holds returns the records that hold slots of a pool, or of every pool for "", as the API server has them.
func (s *Slots) holds(ctx context.Context, pool types.UID) (found holds, err error) {
	now := s.now()
	for page := ""; ; {
		var l v1alpha1.AttestedNodeList
		if err := s.Nodes.List(ctx, &l, client.Limit(listPage), client.Continue(page)); err != nil {
			return nil, fmt.Errorf("list of AttestedNodes: %w", err)
		}
		for n := range l.Items {
			o := &l.Items[n]
			if of, ok := slotOf(o.Spec.MachineUID); !ok || pool != "" && of != pool {
				continue
			}
			record, err := registry.AttestedRecord(o)
			if err != nil { // an object that was edited holds its slot until an operator has corrected it
				found = append(found, hold{claim: membership.Claim{NodeName: o.Name, MachineUID: o.Spec.MachineUID}, state: membership.StateBound})
				continue
			}
			if record != nil && holdsSlot(record, now) {
				found = append(found, hold{record.Claim, record.State, o.ResourceVersion, record.Version})
			}
		}
		if page = l.GetContinue(); page == "" {
			return found, nil
		}
	}
}

// holdsSlot reports whether a record has not ended.
func holdsSlot(r *membership.Record, now time.Time) bool {
	end := r.LastEnd
	if r.State == membership.StateReserved {
		end = r.Deadline
	}
	return r.State == membership.StateBound && end.IsZero() || now.Before(end.Add(slotSlack))
}

// replicas is how many slots a pool has.
func replicas(p *unstructured.Unstructured) (int, error) {
	n, found, err := unstructured.NestedInt64(p.Object, "spec", "replicas")
	if err != nil || !found || n < 0 {
		return 0, misconfigured(p, "spec.replicas", fmt.Sprint(n), "a number")
	}
	return int(n), nil
}

// closed returns a function that refuses a new slot of a pool that is being deleted or is shut.
func (s *Slots) closed(ctx context.Context, p *unstructured.Unstructured) func() error {
	return func() error {
		if p.GetDeletionTimestamp() != nil {
			return attest.NotMember("a machine of MachinePool " + p.GetName() + ", which is being deleted")
		}
		shut, err := s.inventory.shut(ctx, p.GetName())
		if err == nil && shut {
			err = attest.NotMember("a machine of MachinePool " + p.GetName() + ", which is shut until kubectl nodeattest pool open")
		}
		return err
	}
}

// admit refuses a claim for which no slot of the pool is free, and one for the provider ID of another slot. A
// claim that has no slot yet is refused if closed refuses.
func (h holds) admit(p *unstructured.Unstructured, c *membership.Claim, closed func() error) error {
	wanted, err := replicas(p)
	if err != nil {
		return err
	}
	bound, reserved, own := 0, 0, false
	for n := range h {
		of := &h[n]
		switch {
		case of.claim.MachineUID == c.MachineUID && of.claim.NodeName == c.NodeName:
			own = of.state == membership.StateBound
			continue
		case c.ProviderID != "" && oid.CanonicalProviderID(of.claim.ProviderID) == oid.CanonicalProviderID(c.ProviderID):
			return attest.NotMember("provider ID " + refusal.Quote(c.ProviderID) + " of MachinePool " + p.GetName() + ", which node " + of.claim.NodeName + " has")
		case of.state == membership.StateReserved:
			reserved++
		default:
			bound++
		}
	}
	if own {
		return nil
	}
	if err := closed(); err != nil {
		return err
	}
	switch {
	case bound >= wanted:
		return attest.NotMember(fmt.Sprintf("a machine of MachinePool %s, of whose %d slots none is free: %d nodes have one until their last certificates have ended", p.GetName(), wanted, bound))
	case bound+reserved >= wanted:
		return refusal.Retry(fmt.Errorf("no slot of MachinePool %s is free: %d of %d are held and %d reserved", p.GetName(), bound, wanted, reserved))
	}
	return nil
}

// confirm refuses to bind a reservation while no slot is free for it. An earlier reservation goes first.
func (h holds) confirm(p *unstructured.Unstructured, seen *membership.Record, closed func() error) error {
	mine := -1
	for n := range h {
		if h[n].record == seen.Version {
			mine = n
		}
	}
	if mine < 0 {
		return refusal.Retry(fmt.Errorf("the reservation of node %s has changed", seen.NodeName))
	}
	var first holds
	for n := range h {
		if n == mine {
			continue
		}
		if h[n].state == membership.StateReserved {
			// Whichever of two processes reserved later sees the other's reservation: so the later one waits.
			if order, err := resourceversion.CompareResourceVersion(h[mine].version, h[n].version); err != nil {
				return err
			} else if order < 0 {
				continue
			}
		}
		first = append(first, h[n])
	}
	return first.admit(p, &seen.Claim, closed)
}

// slotRegistry is a registry that counts slots when it reserves and binds one.
type slotRegistry struct {
	membership.Registry
	slots *Slots
}

// Reserve reserves, if a slot of the pool is free or the claim has it.
func (r *slotRegistry) Reserve(ctx context.Context, c membership.Claim, deadline time.Time) (*membership.Record, error) {
	pool, ok := slotOf(c.MachineUID)
	if !ok {
		return r.Registry.Reserve(ctx, c, deadline)
	}
	lock := r.slots.lock(pool)
	lock.Lock()
	defer lock.Unlock()
	if err := r.slots.check(ctx, pool, func(p *unstructured.Unstructured, h holds, closed func() error) error { return h.admit(p, &c, closed) }); err != nil {
		return nil, err
	}
	return r.Registry.Reserve(ctx, c, deadline)
}

// Bind binds. Before a reservation is bound, the slots are counted again.
func (r *slotRegistry) Bind(ctx context.Context, record *membership.Record, lastEnd time.Time, issued *csr.IssuedRecord) (*membership.Record, error) {
	if record != nil && record.State == membership.StateReserved {
		if pool, ok := slotOf(record.MachineUID); ok {
			if err := r.slots.check(ctx, pool, func(p *unstructured.Unstructured, h holds, closed func() error) error {
				return h.confirm(p, record, closed)
			}); err != nil {
				return nil, err
			}
		}
	}
	return r.Registry.Bind(ctx, record, lastEnd, issued)
}

// check reads a pool and the records that hold its slots. The pool is read first: one that has grown
// meanwhile may refuse.
func (s *Slots) check(ctx context.Context, pool types.UID, admits func(p *unstructured.Unstructured, h holds, closed func() error) error) error {
	if err := s.ready(); err != nil {
		return err
	}
	p, err := s.inventory.pool(ctx, pool)
	switch {
	case err != nil:
		return refuseSlot(err)
	case !s.inventory.owns(p):
		return attest.NotMember("a machine of MachinePool " + p.GetName() + " of another cluster")
	}
	h, err := s.holds(ctx, pool)
	if err != nil {
		return err
	}
	return admits(p, h, s.closed(ctx, p))
}
