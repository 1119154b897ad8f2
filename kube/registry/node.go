package registry

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// A node is an AttestedNode as it was read or written, and the record in it.
type node struct {
	object *v1alpha1.AttestedNode
	record *membership.Record
	// complete says that the pointers of a reservation name its version.
	complete bool
}

// mayHave reports whether a node's record can have an identity. A node without evidence has no
// Machine UID and no machine but its own: other identities in its record keep none from attested
// nodes.
func (n *node) mayHave(identity string) bool {
	return !withoutEvidence(n.object) || identity == csr.ProviderOf(csr.SignerClientInsecure)+":"+n.object.Name
}

// withoutEvidence reports whether the node of an object proved nothing.
func withoutEvidence(object *v1alpha1.AttestedNode) bool {
	without := membership.Scope{Provider: csr.ProviderOf(csr.SignerClientInsecure), Road: attest.RoadDocument}
	return object.Spec.Scope == without.String()
}

// AttestedRecord returns the record in an object that was read from an API server, of whatever scope:
// nil if the node proved nothing about its machine (csr.SignerClientInsecure). An object that is
// being deleted rests, and a pending change is not part of the record. The error wraps [ErrObject]
// for an object that no registry wrote, and for nil.
func AttestedRecord(object *v1alpha1.AttestedNode) (*membership.Record, error) {
	if object == nil {
		return nil, ErrObject
	}
	n, err := nodeOf(object)
	if err != nil || withoutEvidence(object) {
		return nil, err
	}
	return n.record, nil
}

// version changes with every write, and no other object ever has the same version.
func version(o client.Object) string { return string(o.GetUID()) + "/" + o.GetResourceVersion() }

// readNode reads the record of a name. It returns nil for a name without a record.
func (r *Registry) readNode(ctx context.Context, name string) (*node, error) {
	object := new(v1alpha1.AttestedNode)
	err := r.reader.Get(ctx, client.ObjectKey{Name: name}, object)
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("registry: node %s: %w", name, err)
	}
	return nodeOf(object)
}

func nodeOf(object *v1alpha1.AttestedNode) (*node, error) {
	record, err := recordOf(object)
	if err != nil {
		// Not wrapped: a damaged object is no refusal of a machine.
		return nil, fmt.Errorf("registry: %w: node %s: %s", ErrObject, refusal.Text(object.Name), err.Error())
	}
	return &node{object: object, record: record}, nil
}

// recordOf returns the record in an object. A node that is being deleted has lost its machine:
// it rests.
func recordOf(object *v1alpha1.AttestedNode) (*membership.Record, error) {
	s := &object.Spec
	record := &membership.Record{
		Claim:    membership.Claim{NodeName: object.Name, Machine: attest.Identity(s.Machine), MachineUID: s.MachineUID, ProviderID: s.ProviderID},
		Deadline: timeOf(s.Deadline), LastEnd: timeOf(s.LastEnd), Version: version(object),
	}
	switch s.State {
	case v1alpha1.NodeReserved:
		record.State = membership.StateReserved
	case v1alpha1.NodeBound:
		record.State = membership.StateBound
	case v1alpha1.NodeResting:
		record.State = membership.StateResting
	default:
		return nil, fmt.Errorf("got the state %s", refusal.Quote(string(s.State)))
	}
	reserved, resting := s.State == v1alpha1.NodeReserved, s.State == v1alpha1.NodeResting
	if reserved == record.Deadline.IsZero() || reserved && !record.LastEnd.IsZero() || resting && record.LastEnd.IsZero() {
		return nil, fmt.Errorf("got times that a %s record does not have", record.State)
	}
	for i := range s.Certificates {
		if end := s.Certificates[i].NotAfter; end.After(record.LastEnd) {
			return nil, fmt.Errorf("got a certificate that ends %s, after the last end", end.UTC().Format(time.RFC3339))
		}
	}
	if object.DeletionTimestamp != nil {
		record.State, record.Deadline = membership.StateResting, time.Time{}
	}
	if record.State == membership.StateBound {
		var err error
		if record.Issued, err = issuedOf(object.Name, s.Certificates); err != nil {
			return nil, err
		}
	}
	return record, record.Claim.Check()
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

func timeIn(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// specOf returns a record as it is stored. It drops a pending change.
func (r *Registry) specOf(record *membership.Record) v1alpha1.AttestedNodeSpec {
	s := v1alpha1.AttestedNodeSpec{
		Scope: r.scope.String(), Machine: string(record.Machine), MachineUID: record.MachineUID, ProviderID: record.ProviderID,
		Deadline: timeIn(record.Deadline), LastEnd: timeIn(record.LastEnd),
		Certificates: certificatesOf(record.Issued),
	}
	switch record.State {
	case membership.StateReserved:
		s.State = v1alpha1.NodeReserved
	case membership.StateBound:
		s.State = v1alpha1.NodeBound
	case membership.StateResting:
		s.State = v1alpha1.NodeResting
	}
	return s
}

// put stores a record in place of the old one of that name, which may be nil.
func (r *Registry) put(ctx context.Context, old *node, record *membership.Record) (*node, error) {
	object := new(v1alpha1.AttestedNode)
	if old != nil {
		object = old.object.DeepCopy()
	}
	object.Name = record.NodeName
	object.Spec = r.specOf(record)
	return r.store(ctx, object)
}

// store writes a node's object over the version that it has, or creates it.
func (r *Registry) store(ctx context.Context, object *v1alpha1.AttestedNode) (*node, error) {
	if err := r.write(ctx, object); err != nil {
		return nil, err
	}
	return nodeOf(object)
}

func (r *Registry) write(ctx context.Context, object client.Object) error {
	var err error
	if object.GetResourceVersion() == "" {
		err = r.writer.Create(ctx, object)
	} else {
		object.SetManagedFields([]metav1.ManagedFieldsEntry{{}}) // none: the only writer has no use for them
		err = r.writer.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("registry: %s: %w", object.GetName(), swapped(err))
	}
	return nil
}

// remove deletes with UID and resourceVersion preconditions. The shipped admission policy rejects
// deletes without them, such as kubectl's.
func (r *Registry) remove(ctx context.Context, object client.Object) error {
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := r.writer.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if err != nil {
		return fmt.Errorf("registry: %s: %w", object.GetName(), swapped(err))
	}
	return nil
}
