package kubectl

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// snapshotFrom is from how many machines on the records that concern them are listed, and not read one by one: three to
// seven reads for each machine.
const snapshotFrom = 100

// snapshot has the records that concern some machines, as they were when they were listed. All other objects are read
// from the API server.
type snapshot struct {
	client.Client
	nodes    map[string]*v1alpha1.AttestedNode    // nil: there is no such record
	pointers map[string]*v1alpha1.AttestedMachine // likewise
}

// newSnapshot lists the records of the node names and the machines, and those to which the machines' records lead.
func newSnapshot(ctx context.Context, from client.Client, found []waiting) (*snapshot, error) {
	s := &snapshot{Client: from, nodes: map[string]*v1alpha1.AttestedNode{}, pointers: map[string]*v1alpha1.AttestedMachine{}}
	for i := range found {
		s.nodes[found[i].nodeName] = nil
		s.pointers[v1alpha1.PointerName(string(found[i].machine))] = nil
	}
	err := pages(ctx, from, func() *v1alpha1.AttestedMachineList { return new(v1alpha1.AttestedMachineList) }, func(l *v1alpha1.AttestedMachineList) {
		for i := range l.Items {
			if _, ok := s.pointers[l.Items[i].Name]; ok {
				s.pointers[l.Items[i].Name], s.nodes[l.Items[i].Spec.NodeName] = &l.Items[i], nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return s, pages(ctx, from, func() *v1alpha1.AttestedNodeList { return new(v1alpha1.AttestedNodeList) }, func(l *v1alpha1.AttestedNodeList) {
		for i := range l.Items {
			if _, ok := s.nodes[l.Items[i].Name]; ok {
				s.nodes[l.Items[i].Name] = l.Items[i].DeepCopy() // the rest of the page can go
			}
		}
	})
}

// Get reads a record from the lists, if it was looked for.
func (s *snapshot) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	switch into := into.(type) {
	case *v1alpha1.AttestedNode:
		if n, ok := s.nodes[key.Name]; n != nil {
			n.DeepCopyInto(into)
			return nil
		} else if ok {
			return notFound("attestednodes", key)
		}
	case *v1alpha1.AttestedMachine:
		if m, ok := s.pointers[key.Name]; m != nil {
			m.DeepCopyInto(into)
			return nil
		} else if ok {
			return notFound("attestedmachines", key)
		}
	}
	return s.Client.Get(ctx, key, into, opts...)
}

func notFound(resource string, key client.ObjectKey) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.Group, Resource: resource}, key.Name)
}
