package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// adopt changes the UID of the inventory's Machine, or the provider ID, in a node's record.
func (p *plugin) adopt(ctx context.Context, nodeName string) error {
	record, r, err := p.bound(ctx, nodeName)
	if err != nil {
		return err
	}
	claim := membership.Claim{NodeName: nodeName, Machine: record.Machine, MachineUID: p.machineUID, ProviderID: p.providerID}
	if err := p.fromInventory(ctx, &claim, cmp.Or(r.Scope().Provider, tpm.Provider)); err != nil {
		return err
	}
	what, before, after := "Machine", record.MachineUID, p.machineUID
	if p.providerID != "" {
		what, before, after = "provider ID", record.ProviderID, p.providerID
		if err := p.notStatedOtherwise(ctx, nodeName); err != nil {
			return err
		}
	}
	if err := p.confirm("machine", p.machine, record, fmt.Sprintf("Node %s is machine %s, with %s %s. Change it to %s? "+
		"The node then gets certificates only while the inventory and its evidence agree with it. [y/N] ",
		nodeName, record.Machine, what, refusal.OrNothing(before), after)); err != nil {
		return err
	}
	if p.providerID != "" {
		return p.adoptProviderID(ctx, record)
	}
	if record, err = r.Adopt(ctx, record, p.machineUID); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "node %s is Machine %s\n", nodeName, refusal.Text(record.MachineUID))
	return nil
}

// notStatedOtherwise refuses --provider-id if the node's own newest request that states a provider ID
// states another one. Requests of other users, who may write any ID into them, do not count.
func (p *plugin) notStatedOtherwise(ctx context.Context, nodeName string) error {
	var request, stated string
	var newest time.Time
	err := p.eachRequest(ctx, func(r *csr.Request) {
		if r.User.Username != csr.NodeUserPrefix+nodeName || r.Metadata.CreationTimestamp.Before(newest) {
			return
		}
		if pkcs10, err := r.Parsed().PKCS10(); err == nil && pkcs10.ProviderID != "" {
			request, stated, newest = r.Metadata.Name, pkcs10.ProviderID, r.Metadata.CreationTimestamp
		}
	})
	same, got, want := oid.SameProviderID(p.providerID, stated)
	if err != nil || stated == "" || same {
		return err
	}
	return fmt.Errorf("--provider-id is %s, and node %s itself states %s in request %s: if that is wrong, correct providerID in the node's kubelet-authenticator.yaml first", got, nodeName, want, request)
}

// adoptProviderID changes the provider ID in a node's record and in the records of its certificates, which
// are compared with the inventory. Only an operator knows that it is the same machine.
func (p *plugin) adoptProviderID(ctx context.Context, record *membership.Record) error {
	changed := false
	err := p.change(ctx, record.NodeName, func(s *v1alpha1.AttestedNodeSpec) {
		if changed = s.State == v1alpha1.NodeBound && s.Pending == nil && s.Machine == string(record.Machine) && s.MachineUID == record.MachineUID &&
			s.ProviderID == record.ProviderID; !changed {
			return
		}
		s.ProviderID = p.providerID
		for i := range s.Certificates {
			if c := &s.Certificates[i]; c.ProviderID != "" {
				c.ProviderID = p.providerID
			}
		}
	})
	switch {
	case err != nil:
		return err
	case !changed:
		return errChanged(record.NodeName)
	}
	fmt.Fprintf(p.out, "node %s has provider ID %s now, before %s\n", record.NodeName, refusal.Text(p.providerID), refusal.OrNothing(refusal.Text(record.ProviderID)))
	return nil
}
