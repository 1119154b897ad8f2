package kubectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/refusal"
)

// shutPool marks a MachinePool as shut: it gives no machine a place in the cluster from now on, and the controller
// deletes the bootstrap tokens that it has now, where it renews them. The pool is on another cluster, so its name is
// taken as it is.
func (p *plugin) shutPool(ctx context.Context, pool string) error {
	_, err := p.markPool(ctx, pool, func(marks *corev1.ConfigMap) bool {
		if marks.Data == nil {
			marks.Data = map[string]string{}
		}
		delete(marks.BinaryData, pool) // no key may be in both
		marks.Data[pool] = p.now().UTC().Format(time.RFC3339)
		return true
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "MachinePool %s is shut: no machine joins by it, and nodes that have joined go on renewing\n", pool)
	fmt.Fprintln(p.err, "the controller deletes its bootstrap tokens within a minute, if its configuration has renewPoolTokens; "+
		"otherwise they run out, or delete the Secret bootstrap-token-ID in kube-system, with the ID in the pool's KubeadmConfig")
	return nil
}

// openPool removes the mark of a MachinePool.
func (p *plugin) openPool(ctx context.Context, pool string) error {
	changed, err := p.markPool(ctx, pool, func(marks *corev1.ConfigMap) bool {
		_, is := marks.Data[pool]
		_, binary := marks.BinaryData[pool]
		delete(marks.Data, pool)
		delete(marks.BinaryData, pool)
		return is || binary
	})
	switch {
	case err != nil:
		return err
	case !changed:
		fmt.Fprintf(p.out, "MachinePool %s was not shut\n", pool)
	default:
		fmt.Fprintf(p.out, "MachinePool %s is open: its machines join, and its bootstrap token is renewed\n", pool)
	}
	return nil
}

// markPool changes the ConfigMap of pools that are shut, over the version that was read.
func (p *plugin) markPool(ctx context.Context, pool string, change func(marks *corev1.ConfigMap) bool) (changed bool, err error) {
	if len(validation.IsDNS1123Subdomain(pool)) != 0 {
		return false, fmt.Errorf("%s is no name of a MachinePool", refusal.Quote(pool))
	}
	for range writeTries {
		var marks corev1.ConfigMap
		if err := p.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: clusterapi.ConfigMapPools}, &marks); apierrors.IsNotFound(err) {
			return false, fmt.Errorf("%w: the cluster of the nodes lacks the component clusterapi-pools-nodes, so no machine of a pool joins", err)
		} else if err != nil {
			return false, err
		}
		if !change(&marks) {
			return false, nil
		}
		if err = p.client.Update(ctx, &marks); !apierrors.IsConflict(err) {
			return err == nil, err
		}
	}
	return false, errors.Join(err, fmt.Errorf("ConfigMap %s/%s is written all the time by another program", p.namespace, clusterapi.ConfigMapPools))
}
