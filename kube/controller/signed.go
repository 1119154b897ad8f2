package controller

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// ReasonUnattested is the reason of the Event about a certificate that Kubernetes' own
// signer made for a request which was not approved here, or that cannot be told from one.
const ReasonUnattested = "UnattestedCertificate"

// errNoCertificate says that a request's status holds no certificate.
var errNoCertificate = errors.New("controller: no certificate in the status")

// reference names a request and its key, as the registry remembers it.
func reference(request *csr.Request) (registry.Request, *csr.PKCS10, error) {
	p, err := request.Parsed().PKCS10()
	if err != nil {
		return registry.Request{}, nil, err
	}
	return registry.Request{UID: request.Metadata.UID, SPKIHash: sha256.Sum256(p.CSR.RawSubjectPublicKeyInfo)}, p, nil
}

// recordSigned remembers the certificate that Kubernetes' own signer has put into a client
// request. A certificate that the registry does not take is nobody's to inherit from.
func (r *Reconciler) recordSigned(ctx context.Context, object *certificatesv1.CertificateSigningRequest) error {
	request := Request(object)
	named, pkcs10, err := reference(request)
	if err != nil {
		return nil //nolint:nilerr // whoever approved that, it was not approved here
	}
	nodeName, ok := strings.CutPrefix(pkcs10.CSR.Subject.CommonName, csr.NodeUserPrefix)
	if !ok {
		return nil
	}
	leaf, err := leafOf(object.Status.Certificate)
	if err == nil {
		err = r.c.Certificates.RecordSigned(ctx, nodeName, named, object.Spec.SignerName, leaf)
	}
	logger := log.FromContext(ctx).WithValues("request", object.Name, "node", nodeName)
	switch {
	case err == nil:
		r.metrics.recorded.WithLabelValues("recorded").Inc()
		logger.Info("a certificate was recorded", "credential", csr.CredentialID(leaf), "notAfter", leaf.NotAfter)
	case errors.Is(err, registry.ErrNotAttested), errors.Is(err, errNoCertificate), csr.Decide(err).Verdict == csr.VerdictDeny:
		r.metrics.recorded.WithLabelValues("refused").Inc()
		logger.Info("a certificate was not recorded", "why", err.Error())
		r.tell(object, corev1.EventTypeWarning, ReasonUnattested, "Record", err.Error())
	default:
		return err
	}
	r.done.Add(signedUID(object))
	return nil
}

func leafOf(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errNoCertificate
	}
	return x509.ParseCertificate(block.Bytes)
}
