package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// pageSize is how many nodes are read at a time.
const pageSize = 256

// pages calls each with every object of a kind, page by page.
func (r *Registry) pages(ctx context.Context, kind func() client.ObjectList, each func(client.Object) error) error {
	for page, more := "", true; more; {
		if err := r.check(ctx); err != nil {
			return err
		}
		list := kind()
		err := r.reader.List(ctx, list, client.Limit(pageSize), client.Continue(page))
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && page != "" && apierrors.IsResourceExpired(err) && status.Status().Continue != "" {
			page = status.Status().Continue // the rest, as it is now
			continue
		}
		if err == nil {
			err = meta.EachListItem(list, func(o runtime.Object) error { return each(o.(client.Object)) })
		}
		if err != nil {
			return err
		}
		page, more = list.GetContinue(), list.GetContinue() != ""
	}
	return nil
}

// nodes calls each with every node. It goes on after a damaged one, and returns the error of
// the first at the end.
func (r *Registry) nodes(ctx context.Context, each func(*node) error) error {
	var damaged error
	err := r.pages(ctx, func() client.ObjectList { return new(v1alpha1.AttestedNodeList) }, func(o client.Object) error {
		n, err := nodeOf(o.(*v1alpha1.AttestedNode))
		if err == nil {
			err = each(n)
		}
		if errors.Is(err, ErrObject) {
			damaged = cmp.Or(damaged, err)
			return nil
		}
		return err
	})
	return cmp.Or(err, damaged)
}

// Records yields every record of the registry's scope that counts, in the order of the node
// names; see membership.Registry. It reads them in pages, so changes made meanwhile may or may
// not be seen. A damaged object is left out, and at the end the error is [ErrObject].
func (r *Registry) Records(ctx context.Context) iter.Seq2[*membership.Record, error] {
	return func(yield func(*membership.Record, error) bool) {
		err := r.check(ctx)
		if err == nil {
			err = r.nodes(ctx, func(n *node) error {
				if n.record.Live(r.now()) && n.object.Spec.Scope == r.scope.String() && !yield(clone(n.record), nil) {
					return errEnough
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough ends the iteration: the caller's yield returned false.
var errEnough = errors.New("enough")

// Repair writes the pointers of bound nodes again that are missing or name another node: the objects
// were edited, or restored without each other. Until then such a machine can get a second name. It
// returns how many pointers it has written. A node that changes at the same time is left as it then
// is. It reads all nodes and pointers, in pages, and so is meant for a program's start. It needs list
// on attestednodes and pointers, and get, create and update on pointers. Two nodes of one machine, or
// of one Machine UID, are [ErrObject]. Records of nodes without evidence give way to attested nodes.
func (r *Registry) Repair(ctx context.Context) (repaired int, err error) {
	kinds := []pointerKind{byMachine(), byMachineUID()}
	lost, damaged := r.boundNodes(ctx, kinds)
	if damaged != nil && !errors.Is(damaged, ErrObject) {
		return 0, damaged
	}
	for i, kind := range kinds {
		if err := r.withoutPointer(ctx, kind, lost[i]); err != nil {
			return repaired, err
		}
		for _, n := range lost[i] {
			switch err := r.repoint(ctx, kind, n); {
			case err == nil:
				repaired++
			case !errors.Is(err, errSwapped) && !errors.Is(err, ErrObject):
				return repaired, err
			default:
				damaged = cmp.Or(damaged, err)
			}
		}
	}
	return repaired, damaged
}

// boundNodes returns the bound nodes for each kind of pointer, by the names of their pointers. It
// goes on after two nodes of one identity, and returns an error at the end.
func (r *Registry) boundNodes(ctx context.Context, kinds []pointerKind) ([]map[string]*node, error) {
	found := make([]map[string]*node, len(kinds))
	for i := range found {
		found[i] = map[string]*node{}
	}
	err := r.nodes(ctx, func(n *node) error {
		for i, kind := range kinds {
			identity := kind.of(&n.record.Claim)
			if identity == "" || n.record.State != membership.StateBound || !n.mayHave(identity) {
				continue
			}
			pointer := v1alpha1.PointerName(identity)
			if other := found[i][pointer]; other != nil {
				return fmt.Errorf("registry: %w: nodes %s and %s have one %s", ErrObject, other.object.Name, n.object.Name, kind.what)
			}
			found[i][pointer] = n
		}
		return nil
	})
	return found, err
}

// withoutPointer removes the nodes whose pointers of a kind name them.
func (r *Registry) withoutPointer(ctx context.Context, kind pointerKind, nodes map[string]*node) error {
	return r.pages(ctx, kind.list, func(o client.Object) error {
		if n := nodes[o.GetName()]; n != nil {
			if _, to := kind.parts(o); to.NodeName == n.object.Name {
				delete(nodes, o.GetName())
			}
		}
		return nil
	})
}

// repoint writes a node's pointer of a kind, unless it names the node by now.
func (r *Registry) repoint(ctx context.Context, kind pointerKind, n *node) error {
	p, err := r.readPointer(ctx, kind, kind.of(&n.record.Claim), n)
	if err != nil || p.pointsTo(n.object.Name) {
		return err
	}
	return r.point(ctx, p, n)
}

// sweepAfter is how long ago a record must have ended: a clock that is fast by less frees no name.
const sweepAfter = 24 * time.Hour

// Sweep removes the records, of all scopes, that ended a day ago or more, and their pointers, and
// returns how many records it has removed. A record that has ended affects no claim, but its object
// stays until the name or the machine is claimed again: call Sweep from time to time, as the
// node-attestation-controller does. A claim at the same time goes first. It needs the verbs list and
// delete on attestednodes, and delete on pointers: without these, pointers stay, without effect.
func (r *Registry) Sweep(ctx context.Context) (removed int, err error) {
	err = r.nodes(ctx, func(n *node) error {
		now := r.now()
		if until := n.record.Until(); n.record.Live(now) || until.After(now.Add(-sweepAfter)) && !until.After(now) {
			return nil
		}
		if err := r.remove(ctx, n.object); err != nil {
			if errors.Is(err, errSwapped) {
				return nil
			}
			return err
		}
		removed++
		for _, kind := range []pointerKind{byMachine(), byMachineUID()} {
			r.forget(ctx, kind, kind.of(&n.record.Claim), n.record.NodeName)
		}
		return nil
	})
	return removed, err
}
