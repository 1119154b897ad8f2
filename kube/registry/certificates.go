package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/refusal"
)

// ErrNotAttested says that a certificate is none that the machine which is the node was
// admitted for: it is for another request or key, lasts longer, or the machine is gone.
const ErrNotAttested refusal.Check = "the certificate was not issued through attestation"

// errUnrecorded says that a certificate has been admitted and is not recorded yet.
var errUnrecorded = errors.New("registry: the node's newest certificate is not recorded yet")

// RecordIssued remembers a certificate that was issued to the machine which is the node,
// so that [Registry.Issued] finds it: for who signs itself. What has expired is forgotten;
// of more than v1alpha1.MaxCertificates, those that end first. The error wraps
// [ErrNotAttested] where the machine is no longer the node.
func (r *Registry) RecordIssued(ctx context.Context, issued csr.IssuedRecord) error {
	return r.recordIssued(ctx, issued.NodeName, issued.CredentialID, func(s *v1alpha1.AttestedNodeSpec) (*csr.IssuedRecord, error) {
		if s.Machine != issued.Machine || s.MachineUID != issued.MachineUID {
			return nil, fmt.Errorf("%w: it is of %s", ErrNotAttested, refusal.Text(issued.Machine))
		}
		return &issued, nil
	})
}

// RecordSigned remembers a certificate that another signer made, Kubernetes' own for
// example, for the request with which [Registry.Raise] was last called ([WithRequest]).
// The error wraps [ErrNotAttested] for a certificate of another request or key, one that
// is valid beyond the last end, and one of a machine that is no longer the node.
func (r *Registry) RecordSigned(ctx context.Context, nodeName string, request Request, signerName string, certificate *x509.Certificate) error {
	spki := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	want := v1alpha1.RequestReference{UID: request.UID, SPKISHA256: hex.EncodeToString(request.SPKIHash[:])}
	return r.recordIssued(ctx, nodeName, csr.CredentialID(certificate), func(s *v1alpha1.AttestedNodeSpec) (*csr.IssuedRecord, error) {
		switch {
		case s.Request == nil || *s.Request != want:
			return nil, fmt.Errorf("%w: the node was admitted for another request", ErrNotAttested)
		case spki != request.SPKIHash:
			return nil, fmt.Errorf("%w: it is for another key", ErrNotAttested)
		case certificate.NotAfter.After(timeOf(s.LastEnd)):
			return nil, fmt.Errorf("%w: it is valid beyond the last end", ErrNotAttested)
		}
		return &csr.IssuedRecord{
			CredentialID: csr.CredentialID(certificate), NodeName: nodeName, SignerName: signerName,
			Machine: s.Machine, MachineUID: s.MachineUID, SPKIHash: spki,
			NotBefore: certificate.NotBefore, NotAfter: certificate.NotAfter,
		}, nil
	})
}

// recordIssued adds what admit makes of a bound node's record, which is not asked where the
// certificate is there.
func (r *Registry) recordIssued(ctx context.Context, nodeName, credentialID string, admit func(s *v1alpha1.AttestedNodeSpec) (*csr.IssuedRecord, error)) error {
	for range attempts {
		n, err := r.readNode(ctx, nodeName)
		if err != nil {
			return err
		}
		if n == nil || n.record.State != membership.StateBound {
			return fmt.Errorf("registry: %w: node %s has no machine", ErrNotAttested, refusal.Text(nodeName))
		}
		if err := r.own(n); err != nil {
			return err
		}
		if slices.ContainsFunc(n.object.Spec.Certificates, func(c v1alpha1.IssuedCertificate) bool { return c.CredentialID == credentialID }) {
			return nil
		}
		issued, err := admit(&n.object.Spec)
		if err != nil {
			return fmt.Errorf("registry: node %s: %w", nodeName, err)
		}
		object := n.object.DeepCopy()
		r.add(&object.Spec, issued)
		if _, err = r.store(ctx, object); !errors.Is(err, errSwapped) {
			return err
		}
	}
	return conflict("a record of node "+nodeName+" that others change all the time", "one that stays")
}

// add adds a certificate.
func (r *Registry) add(s *v1alpha1.AttestedNodeSpec, issued *csr.IssuedRecord) {
	now := r.now()
	s.Certificates = slices.DeleteFunc(s.Certificates, func(c v1alpha1.IssuedCertificate) bool { return now.After(c.NotAfter.Time) })
	s.Certificates = append(s.Certificates, v1alpha1.IssuedCertificate{
		CredentialID: issued.CredentialID, SignerName: issued.SignerName, Machine: issued.Machine, MachineUID: issued.MachineUID,
		NodeUID: issued.NodeUID, ProviderID: issued.ProviderID, SPKISHA256: hex.EncodeToString(issued.SPKIHash[:]),
		NotBefore: metav1.NewTime(issued.NotBefore), NotAfter: metav1.NewTime(issued.NotAfter),
	})
	slices.SortFunc(s.Certificates, func(a, b v1alpha1.IssuedCertificate) int {
		return cmp.Or(a.NotAfter.Time.Compare(b.NotAfter.Time), strings.Compare(a.CredentialID, b.CredentialID))
	})
	s.Certificates = s.Certificates[max(0, len(s.Certificates)-v1alpha1.MaxCertificates):]
}

// Issued finds a certificate of a node by its credential ID (csr.CredentialID), for
// csr.InheritAttestation. Where the node has none such, or its machine is gone, the error
// is csr.ErrNoRecord; it wraps csr.ErrRetry while the certificate that the node was last
// admitted for is not recorded, since it may be that one.
func (r *Registry) Issued(ctx context.Context, nodeName, credentialID string) (*csr.IssuedRecord, error) {
	n, err := r.readNode(ctx, nodeName)
	if err != nil {
		return nil, err
	}
	if n == nil || n.record.State != membership.StateBound {
		return nil, csr.ErrNoRecord
	}
	s := &n.object.Spec
	waiting := s.Request != nil
	for i := range s.Certificates {
		c := &s.Certificates[i]
		if c.CredentialID == credentialID {
			return issuedOf(nodeName, c)
		}
		waiting = waiting && c.SPKISHA256 != s.Request.SPKISHA256
	}
	if waiting && r.now().Before(timeOf(s.LastEnd)) {
		return nil, csr.Retry(errUnrecorded)
	}
	return nil, csr.ErrNoRecord
}

func issuedOf(nodeName string, c *v1alpha1.IssuedCertificate) (*csr.IssuedRecord, error) {
	issued := &csr.IssuedRecord{
		CredentialID: c.CredentialID, NodeName: nodeName, SignerName: c.SignerName, Machine: c.Machine, MachineUID: c.MachineUID,
		NodeUID: c.NodeUID, ProviderID: c.ProviderID, NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
	}
	digest, err := hex.DecodeString(c.SPKISHA256)
	if err != nil || len(digest) != len(issued.SPKIHash) {
		return nil, fmt.Errorf("registry: %w: a certificate of node %s", ErrObject, nodeName)
	}
	copy(issued.SPKIHash[:], digest)
	return issued, nil
}
