package registry

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// A pointerKind is one of the two kinds of pointers: by machine or by Machine UID.
type pointerKind struct {
	what string
	// empty returns a new object, parts its identity and reference.
	empty func() client.Object
	list  func() client.ObjectList
	parts func(o client.Object) (identity *string, to *v1alpha1.NodeReference)
	// of returns the identity in a record, pending the one in a change.
	of      func(c *membership.Claim) string
	set     func(c *membership.Claim, identity string)
	pending func(p *v1alpha1.PendingChange) *string
	// holds reports whether a record keeps its identity from others.
	holds func(record *membership.Record) bool
}

func byMachine() pointerKind {
	return pointerKind{
		what:  "machine",
		empty: func() client.Object { return new(v1alpha1.AttestedMachine) },
		list:  func() client.ObjectList { return new(v1alpha1.AttestedMachineList) },
		parts: func(o client.Object) (*string, *v1alpha1.NodeReference) {
			s := &o.(*v1alpha1.AttestedMachine).Spec
			return &s.Machine, &s.NodeReference
		},
		of:      func(c *membership.Claim) string { return string(c.Machine) },
		set:     func(c *membership.Claim, identity string) { c.Machine = attest.Identity(identity) },
		pending: func(p *v1alpha1.PendingChange) *string { return &p.Machine },
		holds:   (*membership.Record).HoldsMachine,
	}
}

func byMachineUID() pointerKind {
	return pointerKind{
		what:  "Machine UID",
		empty: func() client.Object { return new(v1alpha1.AttestedMachineUID) },
		list:  func() client.ObjectList { return new(v1alpha1.AttestedMachineUIDList) },
		parts: func(o client.Object) (*string, *v1alpha1.NodeReference) {
			s := &o.(*v1alpha1.AttestedMachineUID).Spec
			return &s.MachineUID, &s.NodeReference
		},
		of:      func(c *membership.Claim) string { return c.MachineUID },
		set:     func(c *membership.Claim, identity string) { c.MachineUID = identity },
		pending: func(p *v1alpha1.PendingChange) *string { return &p.MachineUID },
		holds:   func(*membership.Record) bool { return true },
	}
}

// A pointer is the pointer of one identity, as it was read.
type pointer struct {
	kind     pointerKind
	identity string
	object   client.Object // nil: no such object
	to       v1alpha1.NodeReference
	target   *node // the node that it names; nil if that does not exist
}

// readPointer reads the pointer of an identity and then the node that it points to, in this
// order. known is a node that has been read; it may be nil.
func (r *Registry) readPointer(ctx context.Context, kind pointerKind, identity string, known *node) (*pointer, error) {
	p := &pointer{kind: kind, identity: identity}
	object := kind.empty()
	name := v1alpha1.PointerName(identity)
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, object)
	if absent(err) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry: pointer of %s %s: %w", kind.what, refusal.Text(identity), err)
	}
	stored, to := kind.parts(object)
	if *stored != identity {
		return nil, fmt.Errorf("registry: %w: %s points for another %s", ErrObject, name, kind.what)
	}
	p.object, p.to = object, *to
	if known != nil && known.object.Name == to.NodeName {
		p.target = known
		return p, nil
	}
	p.target, err = r.readNode(ctx, to.NodeName)
	return p, err
}

// record returns the record of the pointer's identity, or nil if the pointer does not count. A
// change that would give the identity to a bound node, or make a resting one bound with it, counts as a
// reservation of it.
func (p *pointer) record() *membership.Record {
	if p == nil || p.target == nil || !p.target.mayHave(p.identity) {
		return nil
	}
	record := p.target.record
	has, change := p.kind.of(&record.Claim) == p.identity, p.target.object.Spec.Pending
	switch wanted := change != nil && *p.kind.pending(change) == p.identity; {
	case has && !(wanted && record.State == membership.StateResting):
		return record
	case !wanted || record.State == membership.StateReserved:
		return nil
	}
	reserved := *record
	p.kind.set(&reserved.Claim, p.identity)
	reserved.State, reserved.Deadline = membership.StateReserved, timeOf(&change.Deadline)
	return &reserved
}

// pointsTo reports whether the pointer exists and names the node.
func (p *pointer) pointsTo(nodeName string) bool { return p.object != nil && p.to.NodeName == nodeName }

// point makes the pointer name a version of a node. The record that it named before must have
// ended.
func (r *Registry) point(ctx context.Context, p *pointer, to *node) error {
	if err := r.end(ctx, p, to.record.NodeName); err != nil {
		return err
	}
	object := p.kind.empty()
	if p.object != nil {
		object = p.object.DeepCopyObject().(client.Object)
	}
	object.SetName(v1alpha1.PointerName(p.identity))
	identity, reference := p.kind.parts(object)
	*identity, *reference = p.identity, v1alpha1.NodeReference{NodeName: to.record.NodeName, Reservation: version(to.object)}
	return r.write(ctx, object)
}

// end ends a lapsed reservation of the pointer's identity by another node, so that a late Bind by its
// maker fails.
func (r *Registry) end(ctx context.Context, p *pointer, nodeName string) error {
	record := p.record()
	switch {
	case record == nil || record.NodeName == nodeName || record.State == membership.StateResting:
		return nil
	case record.Live(r.now()):
		return errSwapped // the rules have seen another one
	case p.target.record.State == membership.StateReserved:
		return r.remove(ctx, p.target.object)
	}
	object := p.target.object.DeepCopy()
	object.Spec.Pending = nil
	return r.write(ctx, object)
}

// forget removes the pointer of an identity that a node no longer has. It is only for
// tidiness: such a pointer does not count.
func (r *Registry) forget(ctx context.Context, kind pointerKind, identity, nodeName string) {
	if identity == "" {
		return
	}
	p, err := r.readPointer(ctx, kind, identity, nil)
	if err != nil || !p.pointsTo(nodeName) {
		return
	}
	if record := p.record(); record != nil && kind.holds(record) {
		return
	}
	_ = r.remove(ctx, p.object) // over the version that was read: a claim that reserves the identity meanwhile writes the pointer
}
