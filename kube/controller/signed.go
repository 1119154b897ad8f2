package controller

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
)

// reasonUnattested is the reason of the Event about a certificate that Kubernetes' own signer
// made for a request that was not approved here, or that cannot be told apart from such a one.
const reasonUnattested = "UnattestedCertificate"

// errNoCertificate says that a request's status contains no certificate.
var errNoCertificate = errors.New("controller: no certificate in the status")

// errNotAdmitted says that a certificate belongs to no request that was admitted here.
var errNotAdmitted = errors.New("controller: the registry has no approval of this request and key")

// errForgotten says that a certificate that was once recorded would no longer be recorded.
var errForgotten = errors.New("controller: the certificate has ended, or others of its node are kept that were issued later")

// recordSigned records the certificate that Kubernetes' own signer has put into a client request. A
// serving request inherits the attestation of recorded certificates alone.
func (r *Reconciler) recordSigned(ctx context.Context, object *certificatesv1.CertificateSigningRequest) error {
	nodeName := ""
	leaf, err := leafOf(object.Status.Certificate)
	if err == nil {
		var ok bool
		if nodeName, ok = strings.CutPrefix(leaf.Subject.CommonName, csr.NodeUserPrefix); !ok {
			return nil
		}
		err = r.completed(ctx, nodeName, string(object.UID), leaf)
	}
	logger := log.FromContext(ctx).WithValues("request", object.Name, "node", nodeName)
	switch {
	case err == nil:
		r.metrics.recorded.WithLabelValues("recorded").Inc()
		logger.Info("a certificate was recorded", "credential", csr.CredentialID(leaf), "notAfter", leaf.NotAfter)
	case errors.Is(err, errForgotten): // seen again by a replica that has just become the leader
		r.metrics.recorded.WithLabelValues("forgotten").Inc()
		logger.Info("certificate not recorded: it has expired, or the node has newer ones", "credential", csr.CredentialID(leaf), "notAfter", leaf.NotAfter)
	case errors.Is(err, errNotAdmitted), errors.Is(err, errNoCertificate), csr.Decide(err).Verdict == csr.VerdictDeny:
		r.metrics.recorded.WithLabelValues("refused").Inc()
		logger.Info("a certificate was not recorded", "why", err.Error())
		if r.c.Observe == nil {
			r.watched.Warn(object, reasonUnattested, "Record", err.Error())
		} else {
			r.observe(Request(object), nodeName, &csr.Decision{Verdict: csr.VerdictDeny, Reason: reasonUnattested, Message: err.Error()})
		}
	default:
		return err
	}
	r.done.Add(object)
	return nil
}

// completed turns the record of a request into the record of its certificate. A record from Stale is
// enough if the write over it succeeds.
func (r *Reconciler) completed(ctx context.Context, nodeName, uid string, leaf *x509.Certificate) error {
	if r.c.Now().After(leaf.NotAfter) {
		return errForgotten
	}
	if r.c.Stale != nil {
		record, err := r.c.Stale.Lookup(ctx, nodeName)
		if err == nil && record != nil && r.completeIn(ctx, record, uid, leaf) == nil {
			return nil
		}
	}
	record, err := r.c.Registry.Lookup(ctx, nodeName)
	if err != nil {
		return err
	}
	if record == nil {
		return errNotAdmitted
	}
	return r.completeIn(ctx, record, uid, leaf)
}

// completeIn completes the certificate's entry in a record. A certificate that differs from its grant
// is not recorded, but the name stays reserved until it has ended.
func (r *Reconciler) completeIn(ctx context.Context, record *membership.Record, uid string, leaf *x509.Certificate) error {
	for i := range record.Issued {
		issued := &record.Issued[i]
		switch {
		case issued.CredentialID == csr.CredentialID(leaf):
			return nil
		case issued.CredentialID != "" || issued.RequestUID != uid:
			continue
		}
		completed, err := issued.Completed(leaf)
		if err != nil && leaf.NotAfter.After(record.LastEnd) { // it was signed long after the approval
			if _, raised := r.c.Registry.Bind(ctx, record, leaf.NotAfter, nil); raised != nil {
				return raised
			}
		}
		if err != nil {
			return err
		}
		_, err = r.c.Registry.Bind(ctx, record, time.Time{}, &completed)
		return err
	}
	later := func(issued csr.IssuedRecord) bool { return !issued.NotBefore.Before(leaf.NotBefore) }
	if len(record.Issued) >= membership.MaxIssued && slices.ContainsFunc(record.Issued, later) { // the newest is always kept
		return errForgotten
	}
	return errNotAdmitted
}

func leafOf(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errNoCertificate
	}
	return x509.ParseCertificate(block.Bytes)
}
