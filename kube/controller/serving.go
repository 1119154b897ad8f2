package controller

import (
	"context"
	"errors"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
)

// found is what the policy's rule about credentials has looked up, for the decision that
// comes after it.
type found struct {
	nodeName string
	record   *csr.IssuedRecord
}

// foundKey is the key of a context's found.
type foundKey struct{}

// setServing makes the policy for kubelets' own requests one that looks for records where
// the certificates are.
func (r *Reconciler) setServing(policy *csr.Policy) error {
	r.serving = policy.Clone()
	r.serving.Records = func(ctx context.Context, credentialID string) (*csr.IssuedRecord, error) {
		f, _ := ctx.Value(foundKey{}).(*found)
		if f == nil {
			return nil, csr.Retry(errors.New("controller: a record was asked for outside a decision"))
		}
		record, err := r.c.Certificates.Issued(ctx, f.nodeName, credentialID)
		f.record = record
		return record, err
	}
	if err := r.serving.Validate(); err != nil {
		return err
	}
	r.signers[csr.SignerKubeletServing] = messageServing
	return nil
}

// inherit decides about a kubelet's own request for a serving certificate.
func (r *Reconciler) inherit(ctx context.Context, request *csr.Request) error {
	f := &found{nodeName: strings.TrimPrefix(request.Spec.Username, csr.NodeUserPrefix)}
	checked, err := r.serving.Check(context.WithValue(ctx, foundKey{}, f), request.Parsed())
	if err != nil {
		return err
	}
	_, err = csr.InheritAttestation(checked, f.record, r.c.Now())
	return err
}
