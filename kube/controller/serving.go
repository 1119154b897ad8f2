package controller

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// setServing makes the policy for kubelets' own requests, which looks for records in the
// registry.
func (r *Reconciler) setServing(policy *csr.Policy) error {
	r.serving = policy.Clone()
	r.serving.IssuedRecord = membership.IssuedRecords(r.c.Registry)
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
	return checked.Inherit(r.c.Now())
}

// countServing reserves the name of a node until a serving certificate of Kubernetes' own signer has
// ended. The approved certificate ends within the record, but the signer counts from when it signs.
func (r *Reconciler) countServing(ctx context.Context, object *certificatesv1.CertificateSigningRequest) error {
	if leaf, err := leafOf(object.Status.Certificate); err == nil {
		record, err := r.c.Registry.Lookup(ctx, strings.TrimPrefix(leaf.Subject.CommonName, csr.NodeUserPrefix))
		if err == nil && record != nil && record.State == membership.StateBound && leaf.NotAfter.After(record.LastEnd) {
			log.FromContext(ctx).Info("serving certificate ends later than was approved: the node's name stays reserved until then",
				"request", object.Name, "node", record.NodeName, "notAfter", leaf.NotAfter)
			_, err = r.c.Registry.Bind(ctx, record, leaf.NotAfter, nil)
		}
		if err != nil {
			return err
		}
	}
	r.done.Add(object)
	return nil
}
