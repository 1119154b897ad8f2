package controller

import (
	"context"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
)

// leaves reports whether a refusal is left to others. That is so for a request to Kubernetes' own
// signers without evidence, where the reconciler observes, and for a request with the break-glass
// annotation of an administrator, unless it was approved automatically.
func (r *Reconciler) leaves(ctx context.Context, object *certificatesv1.CertificateSigningRequest, request *csr.Request, nodeName string, d *csr.Decision) bool {
	byHand := !slices.ContainsFunc(object.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved && c.Reason == "AutoApproved" // by kube-controller-manager
	})
	if d.Verdict != csr.VerdictApprove && byHand && object.Annotations[requests.BreakGlass] != "" {
		log.FromContext(ctx).Info("not denied: break-glass annotation present", "request", object.Name, "why", object.Annotations[requests.BreakGlass])
		if d.Verdict == csr.VerdictFail { // else it is looked at again once it is approved
			r.done.Add(object)
		}
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

// observe calls the observer with a decision.
func (r *Reconciler) observe(request *csr.Request, nodeName string, d *csr.Decision) {
	if pkcs10, err := request.Parsed().PKCS10(); nodeName == "" && err == nil {
		nodeName, _ = strings.CutPrefix(pkcs10.CSR.Subject.CommonName, csr.NodeUserPrefix)
	}
	if r.signers[request.Spec.SignerName] != messageHello {
		r.c.Observe(request, nodeName, *d)
	}
}
