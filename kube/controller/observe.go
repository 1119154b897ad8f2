package controller

import (
	"context"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// leaves reports whether a decision is left to others. That is the refusal of a request to
// Kubernetes' own signers that brings no evidence, where the reconciler observes; and that of
// a request which an administrator has approved by breaking the glass.
func (r *Reconciler) leaves(ctx context.Context, object *certificatesv1.CertificateSigningRequest, request *csr.Request, nodeName string, d *csr.Decision) bool {
	if d.Verdict == csr.VerdictFail && object.Annotations[requests.BreakGlass] != "" {
		log.FromContext(ctx).Info("approved by breaking the glass", "request", object.Name, "why", object.Annotations[requests.BreakGlass])
		r.done.Add(object)
		return true
	}
	refuses := d.Verdict == csr.VerdictDeny || d.Verdict == csr.VerdictFail
	bundle, err := request.Parsed().Bundle()
	plain := strings.HasPrefix(request.Spec.SignerName, "kubernetes.io/") && (err != nil || bundle.Provider == "")
	if r.c.Observe == nil || refuses && !plain {
		return false
	}
	r.observe(request, nodeName, d)
	if refuses {
		r.done.Add(object)
	}
	return refuses
}

// observe tells whoever observes of a decision.
func (r *Reconciler) observe(request *csr.Request, nodeName string, d *csr.Decision) {
	if pkcs10, err := request.Parsed().PKCS10(); nodeName == "" && err == nil {
		nodeName, _ = strings.CutPrefix(pkcs10.CSR.Subject.CommonName, csr.NodeUserPrefix)
	}
	if r.signers[request.Spec.SignerName] != messageHello {
		r.c.Observe(request, nodeName, *d)
	}
}
