package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// Cached returns a reader for the look-ups of a registry that needs only a cache of nodes: the
// pointers to a node follow from the node, so the pointers need no watch. It listens to
// the cache, so it must be called before the cache starts.
func Cached(ctx context.Context, nodes cache.Cache) (client.Reader, error) {
	if nodes == nil {
		return nil, refusal.Config("nodes", "", "a cache")
	}
	informer, err := nodes.GetInformer(ctx, new(v1alpha1.AttestedNode))
	if err != nil {
		return nil, err
	}
	c := &cached{
		Reader:   nodes,
		machines: pointers{kind: byMachine(), names: map[digest][]string{}, of: func(s *v1alpha1.AttestedNodeSpec) string { return s.Machine }},
		uids:     pointers{kind: byMachineUID(), names: map[digest][]string{}, of: func(s *v1alpha1.AttestedNodeSpec) string { return s.MachineUID }},
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{ //goroutine: changes the index alone
		AddFunc:    func(o any) { c.change(nil, o) },
		UpdateFunc: c.change,
		DeleteFunc: func(o any) {
			if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			c.change(o, nil)
		},
	})
	return c, err
}

// maxShared is how many strings shared by nodes a [Lean] keeps.
const maxShared = 64

// Lean makes a transform for caches (cache.Options.DefaultTransform). It leaves out who wrote
// the fields of an object and the status of a node, which decides nothing, and keeps only one copy of strings that a node contains twice or
// that nodes have in common. Of objects that are cached without their contents, it keeps name,
// namespace, UID and version.
func Lean() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
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
		if o, ok := object.(*metav1.PartialObjectMetadata); ok {
			o.ObjectMeta = metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion}
			return o, nil
		}
		object, err := strip(object)
		n, ok := object.(*v1alpha1.AttestedNode)
		if !ok || err != nil {
			return object, err
		}
		n.Status = v1alpha1.AttestedNodeStatus{}
		mu.Lock()
		defer mu.Unlock()
		for _, text := range []*string{&n.Kind, &n.APIVersion, &n.Spec.Scope, (*string)(&n.Spec.State)} {
			share(text)
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

// digest is the hash in a pointer's name (v1alpha1.PointerName).
type digest = [sha256.Size]byte

// pointers are the names of nodes by their machines or by their Machine UIDs, in a third of
// the memory that an index of the cache takes.
type pointers struct {
	kind  pointerKind
	of    func(s *v1alpha1.AttestedNodeSpec) string
	names map[digest][]string
}

func (p *pointers) enter(n *v1alpha1.AttestedNode) {
	identity := p.of(&n.Spec)
	if d := sha256.Sum256([]byte(identity)); identity != "" && !slices.Contains(p.names[d], n.Name) {
		p.names[d] = append(p.names[d], n.Name)
	}
}

func (p *pointers) leave(n *v1alpha1.AttestedNode) {
	d := sha256.Sum256([]byte(p.of(&n.Spec)))
	left := slices.DeleteFunc(slices.Clone(p.names[d]), func(name string) bool { return name == n.Name })
	if len(left) == 0 {
		delete(p.names, d)
		return
	}
	p.names[d] = left
}

type cached struct {
	client.Reader
	mu             sync.RWMutex
	machines, uids pointers
}

// change applies a change to a node; nil: it did not exist before, or does not exist after.
func (c *cached) change(before, after any) {
	was, _ := before.(*v1alpha1.AttestedNode)
	is, _ := after.(*v1alpha1.AttestedNode)
	if was != nil && is != nil && was.Spec.Machine == is.Spec.Machine && was.Spec.MachineUID == is.Spec.MachineUID {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range []*pointers{&c.machines, &c.uids} {
		if was != nil {
			p.leave(was)
		}
		if is != nil {
			p.enter(is)
		}
	}
}

func (c *cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	var p *pointers
	switch o.(type) {
	case *v1alpha1.AttestedMachine:
		p = &c.machines
	case *v1alpha1.AttestedMachineUID:
		p = &c.uids
	default:
		return c.Reader.Get(ctx, key, o, options...)
	}
	n, err := c.find(ctx, p, key.Name)
	if err != nil {
		return err
	}
	o.SetName(key.Name)
	identity, to := p.kind.parts(o)
	*identity, to.NodeName = p.of(&n.Spec), n.Name
	return nil
}

// find returns the node that a pointer would point to: if there are several, the bound one, or
// else a reserved one.
func (c *cached) find(ctx context.Context, p *pointers, pointer string) (*v1alpha1.AttestedNode, error) {
	var d digest
	if _, err := hex.Decode(d[:], []byte(pointer)[:min(len(pointer), 2*len(d))]); err != nil {
		return nil, notFound(pointer)
	}
	c.mu.RLock()
	names := p.names[d]
	c.mu.RUnlock()
	found := map[v1alpha1.NodeState]*v1alpha1.AttestedNode{}
	for _, name := range names {
		n := new(v1alpha1.AttestedNode)
		if err := c.Reader.Get(ctx, client.ObjectKey{Name: name}, n); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if v1alpha1.PointerName(p.of(&n.Spec)) == pointer { // otherwise it has changed, or is gone
			found[n.Spec.State] = n
		}
	}
	for _, state := range []v1alpha1.NodeState{v1alpha1.NodeBound, v1alpha1.NodeReserved, v1alpha1.NodeResting} {
		if n := found[state]; n != nil {
			return n, nil
		}
	}
	return nil, notFound(pointer)
}

func notFound(pointer string) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion().WithResource("pointers").GroupResource(), pointer)
}
