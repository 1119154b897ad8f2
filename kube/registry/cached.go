package registry

import (
	"context"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// The indexes of a cache of nodes: by the names of the pointers that a node has.
const (
	indexMachine    = "machine"
	indexMachineUID = "machineUID"
)

// IndexedReader is the part of a cache.Cache that [Cached] needs.
type IndexedReader interface {
	client.Reader
	client.FieldIndexer
}

// Cached is a reader for the look-ups of a registry out of a cache of nodes alone: what
// points to a node follows from the node, so that nobody watches the pointers. It has the
// cache keep the indexes that it needs, so it comes before the cache has begun.
func Cached(ctx context.Context, nodes IndexedReader) (client.Reader, error) {
	for index, identity := range map[string]func(s *v1alpha1.AttestedNodeSpec) string{
		indexMachine:    func(s *v1alpha1.AttestedNodeSpec) string { return s.Machine },
		indexMachineUID: func(s *v1alpha1.AttestedNodeSpec) string { return s.MachineUID },
	} {
		if err := nodes.IndexField(ctx, new(v1alpha1.AttestedNode), index, func(o client.Object) []string {
			n, ok := o.(*v1alpha1.AttestedNode)
			if !ok || identity(&n.Spec) == "" {
				return nil
			}
			return []string{v1alpha1.PointerName(identity(&n.Spec))}
		}); err != nil {
			return nil, err
		}
	}
	return &cached{Reader: nodes}, nil
}

// maxShared is how many texts a [Lean] holds that nodes have in common.
const maxShared = 64

// Lean makes a transform for a cache of nodes (cache.ByObject.Transform): it leaves out who
// wrote their fields, and has texts once that a node has twice, or that nodes have in common.
func Lean() func(object any) (any, error) {
	var mu sync.Mutex
	shared := map[string]string{}
	share := func(text *string) {
		if held, ok := shared[*text]; ok {
			*text = held
		} else if len(shared) < maxShared {
			shared[*text] = *text
		}
	}
	return func(object any) (any, error) {
		n, ok := object.(*v1alpha1.AttestedNode)
		if !ok {
			return object, nil
		}
		mu.Lock()
		defer mu.Unlock()
		n.ManagedFields = nil
		for _, text := range []*string{&n.Kind, &n.APIVersion, &n.Spec.Scope, (*string)(&n.Spec.State)} {
			share(text)
		}
		for i := range n.Finalizers {
			share(&n.Finalizers[i])
		}
		for i := range n.Spec.Certificates {
			c := &n.Spec.Certificates[i]
			share(&c.SignerName)
			if c.Machine == n.Spec.Machine {
				c.Machine = n.Spec.Machine
			}
			if c.MachineUID == n.Spec.MachineUID {
				c.MachineUID = n.Spec.MachineUID
			}
		}
		return n, nil
	}
}

type cached struct{ client.Reader }

func (c *cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	switch p := o.(type) {
	case *v1alpha1.AttestedMachine:
		n, err := c.find(ctx, indexMachine, key.Name)
		if err != nil {
			return err
		}
		p.Name, p.Spec.Machine, p.Spec.NodeName = key.Name, n.Spec.Machine, n.Name
		return nil
	case *v1alpha1.AttestedMachineUID:
		n, err := c.find(ctx, indexMachineUID, key.Name)
		if err != nil {
			return err
		}
		p.Name, p.Spec.MachineUID, p.Spec.NodeName = key.Name, n.Spec.MachineUID, n.Name
		return nil
	}
	return c.Reader.Get(ctx, key, o, options...)
}

// find is the node that a pointer would point to: of several the one that is bound, else
// one that is reserved.
func (c *cached) find(ctx context.Context, index, name string) (*v1alpha1.AttestedNode, error) {
	var list v1alpha1.AttestedNodeList
	if err := c.List(ctx, &list, client.MatchingFields{index: name}); err != nil {
		return nil, err
	}
	for _, state := range []v1alpha1.NodeState{v1alpha1.NodeBound, v1alpha1.NodeReserved, v1alpha1.NodeResting} {
		if i := slices.IndexFunc(list.Items, func(n v1alpha1.AttestedNode) bool { return n.Spec.State == state }); i >= 0 {
			return &list.Items[i], nil
		}
	}
	return nil, apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource(index).GroupResource(), name)
}
