package registry

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// pageSize is how many nodes are read at a time.
const pageSize = 256

// nodes calls each with every node, page by page. It goes on after a damaged one, and returns
// the error of the first at the end.
func (r *Registry) nodes(ctx context.Context, each func(*node) error) error {
	var damaged error
	for page, more := "", true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		var list v1alpha1.AttestedNodeList
		err := r.reader.List(ctx, &list, client.Limit(pageSize), client.Continue(page))
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok && page != "" && apierrors.IsResourceExpired(err) && status.Status().Continue != "" {
			page = status.Status().Continue // the rest, as it is now
			continue
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			n, err := nodeOf(&list.Items[i])
			if err == nil {
				err = each(n)
			}
			if errors.Is(err, ErrObject) {
				if damaged == nil {
					damaged = err
				}
				continue
			}
			if err != nil {
				return err
			}
		}
		page, more = list.Continue, list.Continue != ""
	}
	return damaged
}

// Records yields every record of the registry's scope that counts, in the order of the node
// names; see membership.Registry. It reads them in pages, so changes made meanwhile may or may
// not be seen. A damaged object is left out, and at the end the error is [ErrObject].
func (r *Registry) Records(ctx context.Context) iter.Seq2[*membership.Record, error] {
	return Several{r}.Records(ctx)
}

// Records is the Records of all registries at once.
func (s Several) Records(ctx context.Context) iter.Seq2[*membership.Record, error] {
	return func(yield func(*membership.Record, error) bool) {
		if len(s) == 0 {
			yield(nil, errNone)
			return
		}
		scopes := make([]string, len(s))
		for i, r := range s {
			scopes[i] = r.scope.String()
		}
		err := s[0].nodes(ctx, func(n *node) error {
			if n.record.Live(s[0].now()) && slices.Contains(scopes, n.object.Spec.Scope) && !yield(clone(n.record), nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough: whoever ranges over records has stopped.
var errEnough = errors.New("enough")

// sweepAfter is how long ago a record must have ended: a clock that is fast by less frees no name.
const sweepAfter = 24 * time.Hour

// Sweep removes the records that have ended a day ago or more, those of other scopes too, and
// their pointers, and returns how many records it has removed. A record that has ended counts
// for nobody, but its object stays until the name or the machine is claimed again: somebody has
// to sweep from time to time, as the node-attestation-controller does. Whoever claims a name at
// the same time goes first. It needs the verbs list and delete on attestednodes, and
// delete on pointers: without these, pointers stay, and do not count.
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
