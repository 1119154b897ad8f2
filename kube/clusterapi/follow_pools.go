package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// foundPools are the MachinePools of the Cluster.
type foundPools struct {
	byUID  map[types.UID]*unstructured.Unstructured
	byName map[string]*unstructured.Unstructured
}

// listPools reads all MachinePools; for a program that admits no machines of pools, it returns an empty list.
func (i *Inventory) listPools(ctx context.Context) (*foundPools, error) {
	f := &foundPools{map[types.UID]*unstructured.Unstructured{}, map[string]*unstructured.Unstructured{}}
	if i.slots == nil || i.kinds.pool.Empty() {
		return f, nil
	}
	err := i.each(ctx, i.kinds.pool, func(p *unstructured.Unstructured) {
		if i.owns(p) && p.GetUID() != "" {
			p = p.DeepCopy()
			f.byUID[p.GetUID()], f.byName[p.GetName()] = p, p
		}
	})
	return f, err
}

// boundSlot compares a bound record of a MachinePool. It is due once the provider ID of its machine has left
// spec.providerIDList, and never while that is empty or did not have it before. After a move of the Cluster
// it is adopted for the pool of the same name. A record of a pool that was deleted is left to its end, and loses
// the note of the Cluster: else a move would take the deleted pool for one that was moved.
func (s *sweep) boundSlot(ctx context.Context, c *comparison, pool types.UID, object *v1alpha1.AttestedNode, record *membership.Record) {
	p := c.pools.byUID[pool]
	if p == nil {
		if s.successorOf(c.pools, s.clusterUID, object, record) != nil {
			c.counts["replaced"]++
			c.moved = append(c.moved, lapsed{object: object, record: record})
		} else if s.slots != nil && !s.kinds.pool.Empty() && object.GetAnnotations()[AnnotationClusterUID] == string(s.clusterUID) {
			c.note(s.note(ctx, object, map[string]string{AnnotationClusterUID: ""})) // deleted, not moved: no later move adopts it
		}
		return
	}
	notes := map[string]string{AnnotationMachine: s.origin(p).String(), AnnotationMachineUID: record.MachineUID,
		AnnotationClusterUID: string(s.clusterUID), AnnotationGone: ""}
	if ids, id := providerIDs(p), oid.CanonicalProviderID(record.ProviderID); id != "" && len(ids) > 0 {
		if slices.Contains(ids, id) {
			notes[AnnotationProviderID] = id
		} else if of, _ := originOf(object, record); of == s.origin(p) && object.GetAnnotations()[AnnotationProviderID] == id {
			s.miss(c, object, record)
			return
		}
	}
	c.counts["there"]++
	c.note(s.note(ctx, object, notes))
}

// successorOf returns the MachinePool that has the name of a record's former one, which is gone, if the
// Cluster has another UID than at that time: as clusterctl move and a restored backup leave it. A pool
// that was made again in the same Cluster has other machines.
func (i *Inventory) successorOf(
	pools *foundPools, clusterUID types.UID, object *v1alpha1.AttestedNode, record *membership.Record,
) *unstructured.Unstructured {
	of, _ := originOf(object, record)
	noted := object.GetAnnotations()[AnnotationClusterUID]
	p := pools.byName[of.name]
	if of != (origin{i.namespace, i.cluster, of.name}) || noted == "" || noted == string(clusterUID) ||
		p == nil || p.GetDeletionTimestamp() != nil {
		return nil
	}
	return p
}

// adoptSlots gives the records of MachinePools that were moved slots of their pools, for the same machines: the
// records with the latest certificates first, while a pool has a free slot. If another process adopts one at the same
// time, the next run goes on with that pool: its slots cannot be counted now.
func (s *sweep) adoptSlots(ctx context.Context, c *comparison) {
	slices.SortStableFunc(c.moved, func(a, b lapsed) int { return b.record.LastEnd.Compare(a.record.LastEnd) })
	later := map[types.UID]bool{}
	for _, one := range c.moved {
		p := s.successorOf(c.pools, s.clusterUID, one.object, one.record)
		if later[p.GetUID()] {
			continue
		}
		err := s.adoptSlot(ctx, p, one.record)
		later[p.GetUID()] = overtaken(err)
		c.note(err)
	}
}

// adoptSlot adopts one record for a MachinePool.
func (s *sweep) adoptSlot(ctx context.Context, p *unstructured.Unstructured, record *membership.Record) error {
	_, machine, _ := strings.Cut(record.MachineUID, slotSeparator)
	claim := record.Claim
	claim.MachineUID = string(p.GetUID()) + slotSeparator + machine
	lock := s.slots.lock(p.GetUID())
	lock.Lock()
	defer lock.Unlock()
	holds, err := s.slots.holds(ctx, p.GetUID())
	if err == nil {
		err = holds.admit(p, &claim, func() error { return nil }) // a pool that is shut keeps its nodes
	}
	if err != nil {
		return fmt.Errorf("node %s not adopted for MachinePool %s, which was moved: %w", record.NodeName, p.GetName(), err)
	}
	return s.adopt(ctx, record, claim.MachineUID)
}

// slotPool returns the MachinePool of a record. While the next sweep is to adopt the record, because the
// pool was moved, the request waits.
func (i *Inventory) slotPool(ctx context.Context, pool types.UID, record *membership.Record) (*unstructured.Unstructured, error) {
	p, err := i.pool(ctx, pool)
	if !errors.Is(err, csr.ErrNoMachine) || i.follow == nil || i.slots == nil {
		return p, err
	}
	var object v1alpha1.AttestedNode
	if err := i.follow.Nodes.Get(ctx, client.ObjectKey{Name: record.NodeName}, &object); err != nil {
		return nil, err
	}
	cluster, failed := i.clusterNow(ctx)
	switch {
	case failed != nil:
		return nil, failed
	case cluster == nil:
		return nil, err // the request waits: unlessPaused
	}
	pools, failed := i.listPools(ctx)
	if failed != nil {
		return nil, failed
	}
	if p := i.successorOf(pools, cluster.GetUID(), &object, record); p != nil {
		return nil, refusal.Retry(fmt.Errorf("node %s has a slot of MachinePool %s before it was moved, and the record is not adopted yet",
			record.NodeName, p.GetName()))
	}
	return nil, err
}
