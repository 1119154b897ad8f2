package claims

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// CheckNodeCertificate: no client certificate of a node, one that does not hold to the
// form of such, or none that was verified.
const CheckNodeCertificate Check = "node-certificate"

// The names in a node's certificate (Kubernetes, "Using Node Authorization").
const (
	nodeCommonNamePrefix = "system:node:"
	nodeOrganization     = "system:nodes"
)

// NodeCertificateOptions are the choices for reading a node's client certificate. Nil and
// each zero field are a sensible default.
type NodeCertificateOptions struct {
	// RequireProviderID refuses a certificate without the provider ID's extension, as
	// every one that kube-controller-manager's built-in signer issued is.
	RequireProviderID bool
	// Now is the clock that the certificate must be valid by; nil means time.Now. It is
	// looked at because a connection may outlive the certificate that opened it.
	Now func() time.Time
}

// AttestedNodeFromCertificate reads who a node is from its client certificate. The caller
// has verified the chain, for client authentication, to a CA that signs for attested nodes
// only: any other CA for clients can name a node that was never attested, and nothing in
// the certificate tells. Where the cluster has no CA of that kind, look the certificate up
// in the records of those that were issued through attestation.
//
// The subject must be exactly one common name "system:node:<name>" and one organization
// "system:nodes"; the certificate is none of a CA, is valid now, is for client
// authentication by name, and has no subject alternative names. The provider ID is that of
// the extension ([oid.ParseProviderID]), which must be well formed where it is. Everything
// else is refused with [CheckNodeCertificate].
func AttestedNodeFromCertificate(cert *x509.Certificate, opts *NodeCertificateOptions) (*AttestedNode, error) {
	if opts == nil {
		opts = &NodeCertificateOptions{}
	}
	if cert == nil {
		return nil, certificateError("no certificate", "a node's", nil)
	}
	name, err := nodeOf(cert)
	if err != nil {
		return nil, err
	}
	now := clock(opts.Now)()
	switch {
	case cert.IsCA:
		return nil, certificateError("a CA's certificate", "a node's", nil)
	case now.Before(cert.NotBefore) || now.After(cert.NotAfter):
		return nil, certificateError("a certificate valid from "+cert.NotBefore.UTC().Format(time.RFC3339)+" to "+cert.NotAfter.UTC().Format(time.RFC3339),
			"one valid at "+now.UTC().Format(time.RFC3339), nil)
	case !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return nil, certificateError("a certificate for something else", "one for client authentication", nil)
	case hasAlternativeNames(cert):
		return nil, certificateError("subject alternative names", "none", nil)
	}
	id, err := oid.ParseProviderID(cert.Extensions)
	if err != nil && (opts.RequireProviderID || !errors.Is(err, oid.CheckProviderIDMissing)) {
		return nil, certificateError("no good provider ID", "one", err)
	}
	return &AttestedNode{Name: name, ProviderID: id}, nil
}

// AttestedNodeFromTLS is [AttestedNodeFromCertificate] for a connection: the server must
// have verified the client's chain (tls.RequireAndVerifyClientCert), which it states in
// VerifiedChains.
func AttestedNodeFromTLS(state *tls.ConnectionState, opts *NodeCertificateOptions) (*AttestedNode, error) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil, certificateError("a connection without a verified client certificate", "one", nil)
	}
	return AttestedNodeFromCertificate(state.VerifiedChains[0][0], opts)
}

func certificateError(got, want string, err error) *Error {
	return &Error{Check: CheckNodeCertificate, Got: got, Want: want, Err: err}
}

// nodeOf returns the node's name out of a subject that says nothing else.
func nodeOf(cert *x509.Certificate) (string, error) {
	// Two attributes, one of them the organization: the name that is read below is the
	// other, or there is none.
	organization, organizations := asn1.ObjectIdentifier{2, 5, 4, 10}, 0
	for _, attribute := range cert.Subject.Names {
		if attribute.Type.Equal(organization) && attribute.Value == nodeOrganization {
			organizations++
		}
	}
	if organizations != 1 || len(cert.Subject.Names) != 2 {
		return "", certificateError("subject "+strconv.Quote(refusal.Text(cert.Subject.String())), "one common name and the organization "+nodeOrganization, nil)
	}
	name, ok := strings.CutPrefix(cert.Subject.CommonName, nodeCommonNamePrefix)
	if !ok || !validName(name) {
		return "", certificateError("common name "+strconv.Quote(refusal.Text(cert.Subject.CommonName)), nodeCommonNamePrefix+"<name>", nil)
	}
	return name, nil
}

// hasAlternativeNames reports whether the extension is there, whatever kinds of names it
// holds.
func hasAlternativeNames(cert *x509.Certificate) bool {
	for i := range cert.Extensions {
		if oid.SubjectAltName.Equal(cert.Extensions[i].Id) {
			return true
		}
	}
	return false
}
