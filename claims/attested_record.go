package claims

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/nodeattest/nodeattest/refusal"
)

// CertificateRecord is what was recorded of a node's client certificate when it was issued
// through attestation: the members of a csr.IssuedRecord that have these names.
type CertificateRecord struct {
	// CredentialID is "X509SHA256=" and the hexadecimal SHA-256 of the certificate's DER.
	CredentialID string
	// NodeName is the node that the certificate was issued to.
	NodeName string
	// NodeUID is the UID of the Node object at that time; "" where there was none yet, as
	// at a machine's first join.
	NodeUID string
	// Machine is the canonical identity of the machine that was verified.
	Machine string
	// MachineUID is the UID of the object that stood for the machine; "" where there was
	// none.
	MachineUID string
	// ProviderID is the provider ID in the certificate; "" where it has none.
	ProviderID string
}

// Records finds the record of a certificate by its credential ID, among those that were
// issued through attestation and for clients alone (csr.IssuedRecord.ClientOf). A
// certificate that nobody recorded is an error that errors.Is finds [ErrNotFound] in; every
// other error says that the question could not be answered. It must be safe for concurrent
// use.
type Records func(ctx context.Context, credentialID string) (*CertificateRecord, error)

// AttestedNodeFromRecord is [AttestedNodeFromCertificate] with what the certificate's
// record knows of the machine. The record must be that of this very certificate, and of a
// machine: another credential ID, node name or provider ID, and a record without a Machine,
// are refused with [CheckNodeCertificate].
func AttestedNodeFromRecord(cert *x509.Certificate, record *CertificateRecord, opts NodeCertificateOptions) (*AttestedNode, error) {
	node, err := AttestedNodeFromCertificate(cert, opts)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, certificateError("a certificate that nobody recorded", "one that was issued through attestation", nil)
	}
	for _, same := range [...]struct{ what, got, want string }{
		{"credential ID ", record.CredentialID, credentialID(cert)},
		{"node ", record.NodeName, node.Name},
		{"provider ID ", record.ProviderID, node.ProviderID},
	} {
		if same.got != same.want {
			return nil, certificateError("a record of "+same.what+refusal.OrNothing(refusal.Text(same.got)), refusal.OrNothing(refusal.Text(same.want)), nil)
		}
	}
	if record.Machine == "" {
		return nil, certificateError("a record without a machine", "one of a machine that was verified", nil)
	}
	node.UID, node.Machine, node.MachineUID = record.NodeUID, record.Machine, record.MachineUID
	return node, nil
}

// credentialID is how kube-apiserver names a client certificate (k8s.io/apiserver,
// authentication/request/x509).
func credentialID(cert *x509.Certificate) string {
	digest := sha256.Sum256(cert.Raw)
	return "X509SHA256=" + hex.EncodeToString(digest[:])
}

// node finds out who is at the other end of a connection.
func (records Records) node(r *http.Request, opts NodeCertificateOptions) (*AttestedNode, error) {
	if _, err := AttestedNodeFromTLS(r.TLS, opts); err != nil {
		return nil, err // and nobody is asked
	}
	cert := r.TLS.VerifiedChains[0][0]
	record, err := records(r.Context(), credentialID(cert))
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, certificateError("a certificate that nobody recorded", "one that was issued through attestation", err)
	case err != nil || record == nil:
		return nil, retry("the certificate's record", err)
	}
	return AttestedNodeFromRecord(cert, record, opts)
}
