package boundtokens

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// FindRecord returns the record of a node's client certificate, for [claims.HandlerOptions], from the
// AttestedNode of that name. The error wraps [claims.ErrNotFound] if the node is not bound to a machine,
// if it has shown no evidence of its machine, or if the machine has no such client certificate now. It is
// [refusal.ErrRetry] while the machine of the node is being changed, and, for a certificate that is
// not recorded, while the record of another one that was just issued is not complete.
func (c *Cluster) FindRecord(ctx context.Context, nodeName, credentialID string) (*claims.CertificateRecord, error) {
	record, err := c.bound(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	for i := range record.Issued {
		if r := &record.Issued[i]; r.ClientOf(nodeName, credentialID) {
			return &claims.CertificateRecord{
				CredentialID: r.CredentialID, NodeName: r.NodeName, NodeUID: r.NodeUID,
				Machine: r.Machine, MachineUID: r.MachineUID, ProviderID: r.ProviderID,
			}, nil
		}
	}
	for i := range record.Issued {
		if record.Issued[i].CredentialID == "" {
			return nil, refusal.Retry(fmt.Errorf("boundtokens: attestednode %s: a certificate is not recorded yet", refusal.Text(nodeName)))
		}
	}
	return nil, fmt.Errorf("boundtokens: attestednode %s: none of its client certificates is %s: %w", refusal.Text(nodeName), refusal.Text(credentialID), claims.ErrNotFound)
}

// FindMachine returns the machine that is bound to a node's name, for [claims.NodeCheck], from the
// AttestedNode of that name. The error wraps [claims.ErrNotFound] if the node is not bound to a machine,
// or has shown no evidence of it, and is [refusal.ErrRetry] while the machine is being changed.
func (c *Cluster) FindMachine(ctx context.Context, nodeName string) (*claims.RegisteredMachine, error) {
	record, err := c.bound(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	return &claims.RegisteredMachine{Identity: string(record.Machine), ProviderID: record.ProviderID, UID: record.MachineUID}, nil
}

// bound returns the record of a node that is bound to a machine which has attested.
func (c *Cluster) bound(ctx context.Context, nodeName string) (*membership.Record, error) {
	var got v1alpha1.AttestedNode
	t := target{of: v1alpha1.GroupVersion().WithResource("attestednodes"), name: nodeName}
	missing := func(what string) error {
		return fmt.Errorf("boundtokens: attestednode %s: %s: %w", refusal.Text(nodeName), what, claims.ErrNotFound)
	}
	err := c.get(ctx, t, acceptWhole, &got)
	switch {
	case errors.Is(err, errAbsent):
		return nil, missing("the API server has none")
	case err != nil:
		return nil, err
	case got.Kind != "AttestedNode" || got.APIVersion != v1alpha1.GroupVersion().String() || got.Name != nodeName || got.UID == "":
		return nil, another(t, got.Kind, &got.ObjectMeta)
	}
	record, err := registry.AttestedRecord(&got)
	switch pending := got.Spec.Pending; {
	case err != nil:
		return nil, refusal.Retry(fmt.Errorf("boundtokens: attestednode %s: %w", refusal.Text(nodeName), err))
	case record == nil:
		return nil, missing("a node without evidence")
	case record.State != membership.StateBound:
		return nil, missing("its state is " + string(record.State))
	case pending != nil && time.Now().Before(pending.Deadline.Add(claims.DefaultLeeway)): // void afterwards
		return nil, refusal.Retry(fmt.Errorf("boundtokens: attestednode %s: its machine is being changed", refusal.Text(nodeName)))
	}
	return record, nil
}
