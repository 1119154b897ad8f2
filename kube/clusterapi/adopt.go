package clusterapi

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// noted returns the record of a node and the name of the Machine of this Cluster that it is of; nil without
// such a record, and for a slot: a Machine that has the name of a MachinePool replaces none of its machines. It may be a moment behind: a record that has changed is not adopted.
func (i *Inventory) noted(ctx context.Context, nodeName string) (*membership.Record, string, error) {
	if i.follow == nil {
		return nil, "", nil
	}
	var object v1alpha1.AttestedNode
	if err := i.follow.Nodes.Get(ctx, client.ObjectKey{Name: nodeName}, &object); err != nil {
		return nil, "", client.IgnoreNotFound(err)
	}
	record, err := registry.AttestedRecord(&object)
	if err != nil || record == nil {
		return nil, "", err
	}
	of, known := originOf(&object, record)
	if _, slot := slotOf(record.MachineUID); slot || !known || of.namespace != i.namespace || of.cluster != i.cluster {
		return nil, "", nil
	}
	return record, of.name, nil
}

// successor returns the Machine that has the name of a record's former one, which is gone: as it is now,
// or nil. It may be of another Cluster.
func (i *Inventory) successor(ctx context.Context, record *membership.Record) (*unstructured.Unstructured, error) {
	noted, name, err := i.noted(ctx, record.NodeName)
	if err != nil || noted == nil || noted.MachineUID != record.MachineUID {
		return nil, err
	}
	m, err := i.get(ctx, i.kinds.machine, name)
	switch {
	case errors.Is(err, csr.ErrNoMachine):
		return nil, nil
	case err != nil:
		return nil, err
	case m.GetDeletionTimestamp() != nil:
		return nil, nil
	}
	return m, nil
}

// former returns the record of the request's node, bound or resting, if its former Machine is gone and that
// of the request has its name, with the same machine; otherwise nil. At the hello the machine is not known for
// sure.
func (i *Inventory) former(ctx context.Context, r *attest.Result) (*membership.Record, error) {
	now := r.Checked().Machine()
	record, name, err := i.noted(ctx, r.NodeName)
	switch {
	case err != nil || record == nil:
		return nil, err
	case record.State == membership.StateReserved || record.Machine != r.Machine || now.UID == "" || now.UID == record.MachineUID || now.Name != i.namespace+"/"+name:
		return nil, nil
	}
	// Two Machines of a namespace never have one name: while it has the request's, the former is gone.
	m, err := i.get(ctx, i.kinds.machine, name)
	switch {
	case err != nil:
		return nil, err
	case string(m.GetUID()) != now.UID || !i.owns(m) || m.GetDeletionTimestamp() != nil:
		return nil, refusal.Retry(fmt.Errorf("Machine %s has been replaced meanwhile", name))
	}
	return record, nil
}

// adopt gives a record the UID of the Machine that has replaced its former one.
func (i *Inventory) adopt(ctx context.Context, record *membership.Record, uid string) error {
	if _, err := i.follow.Records.Adopt(ctx, record, uid); err != nil {
		return fmt.Errorf("node %s not adopted for the Machine that has replaced its former one: %w", record.NodeName, err)
	}
	log.FromContext(ctx).Info("adopted the node of a Machine that was replaced by one of the same name and machine", "node", record.NodeName,
		"machine", string(record.Machine), "formerMachineUID", record.MachineUID, "machineUID", uid)
	return nil
}

// awaitsAdoption has a request for a serving certificate wait while the Machine of the node has replaced the
// one in its record: such a request has no evidence.
func (i *Inventory) awaitsAdoption(ctx context.Context, nodeName string, found *unstructured.Unstructured) error {
	record, _, err := i.noted(ctx, nodeName)
	if err != nil || record == nil || record.MachineUID == string(found.GetUID()) {
		return err
	}
	return refusal.Retry(fmt.Errorf("the record of node %s is of a former Machine, and the node has not attested for Machine %s yet", nodeName, found.GetName()))
}
