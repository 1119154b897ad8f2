package controller

import (
	"context"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// setServing makes the policy for kubelets' own requests, which looks for records in the
// registry.
func (r *Reconciler) setServing(policy *csr.Policy) error {
	r.serving = policy.Clone()
	r.serving.Records = membership.IssuedRecords(r.c.Records)
	if err := r.serving.Validate(); err != nil {
		return err
	}
	r.signers[csr.SignerKubeletServing] = messageServing
	return nil
}

// inherit decides a kubelet's own request for a serving certificate.
func (r *Reconciler) inherit(ctx context.Context, request *csr.Request) (*csr.Attested, error) {
	checked, err := r.serving.Check(ctx, request.Parsed())
	if err != nil {
		return nil, err
	}
	return csr.InheritAttestation(checked, r.c.Now())
}
