package claims

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/internal/wallclock"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// AttestedNode identifies the node and the machine at the other end of a connection. Fill it from
// a verified certificate ([AttestedNodeFromTLS]), from the record of an issued certificate
// ([AttestedNodeFromRecord]), or from the result of a verification by package attest. The zero
// value is not a node and is refused.
type AttestedNode struct {
	// Name is the node's name. It is required.
	Name string
	// UID is the UID of the Node object that the certificate was issued for, if its record
	// has one, or else "". It is never that of the Node that has the name now.
	UID string
	// ProviderID is the verified provider ID, from the certificate's extension, its record, or
	// attest's Authorization. It is "" without one, or if only the certificate is known:
	// kube-controller-manager's built-in signer drops the extension. Never use a node's own claim.
	ProviderID string
	// Machine is the canonical identity of the machine that was verified, such as
	// "ek:sha256:" and a digest: the text of an attest.Identity, as also found in
	// csr.IssuedRecord; "" if it is not known.
	Machine string
	// MachineUID is the UID of the object that represented the machine when it was
	// verified, such as the Cluster API's Machine; "" if it is not known.
	MachineUID string
}

// RegisteredMachine is the machine that is registered for a node's name.
type RegisteredMachine struct {
	// Identity is the machine's canonical identity, spelled as in AttestedNode.Machine;
	// "" if the registry does not know it.
	Identity string
	// ProviderID is the machine's provider ID, spelled as in the Node's spec.providerID;
	// "" if the registry does not know it.
	ProviderID string
	// UID is the UID of the object that represents the machine, spelled as in
	// AttestedNode.MachineUID; "" if the registry does not know it.
	UID string
}

// Facts is a set of agreements between a token, an attested node, its Node object and the
// registry.
type Facts uint

// The facts. Each is an agreement between two sources that both know the value.
const (
	// FactNodeName: the token names the attested node. Always required.
	FactNodeName Facts = 1 << iota
	// FactNodeUID: the token names the Node object that exists now, by its UID. Always
	// required.
	FactNodeUID
	// FactAttestedUID: the attestation was made for this Node object, too. It is a fact about the
	// Node only, which may be kept for another machine.
	FactAttestedUID
	// FactCertificateProviderID: the Node's provider ID is the one that was verified when the
	// machine was attested. It is a fact about the presenter.
	FactCertificateProviderID
	// FactRegisteredProviderID: the Node's provider ID is that of the registered machine.
	// It is a fact from the registry.
	FactRegisteredProviderID
	// FactRegisteredMachine: the machine that was attested is the registered one. It is
	// both a fact about the presenter and one from the registry.
	FactRegisteredMachine
	// FactRegisteredMachineUID: the object that represented the machine when it was attested
	// is the registered one. It is both a fact about the presenter and one from the registry.
	FactRegisteredMachineUID

	endOfFacts
)

const (
	// presenterFacts are the facts that tie the machine that presents a token to the node by
	// more than the name in its certificate.
	presenterFacts = FactCertificateProviderID | machineFacts
	// machineFacts say that the registered machine is the one that was attested.
	machineFacts = FactRegisteredMachine | FactRegisteredMachineUID
	// registryFacts are those known from a source other than the Node object, which the node
	// itself may write.
	registryFacts = FactRegisteredProviderID | FactRegisteredMachine | FactRegisteredMachineUID
)

// factNames are the names of the facts, lowest bit first.
var factNames = [...]string{
	"node-name", "node-uid", "attested-uid",
	"certificate-provider-id", "registered-provider-id", "registered-machine", "registered-machine-uid",
}

// Has reports whether all the given facts are in the set.
func (f Facts) Has(all Facts) bool { return f&all == all }

// String lists the facts by name, joined by commas; "none" for the empty set.
func (f Facts) String() string {
	var names []string
	for i, name := range factNames {
		if f.Has(1 << i) {
			names = append(names, name)
		}
	}
	if f >= endOfFacts {
		names = append(names, "unknown")
	}
	return cmp.Or(strings.Join(names, ","), "none")
}

// NodeFacts says why a token counts as issued to a workload on the attested machine.
type NodeFacts struct {
	// Facts are the agreements that this is based on.
	Facts Facts
	// Node is the Node object.
	Node Object
	// Machine is the registered machine.
	Machine RegisteredMachine
}

// checkNodeCertificate: there is no client certificate of a node, or it does not have the
// required form, or it was not verified.
const checkNodeCertificate Check = "node-certificate"

// The names in a node's certificate (Kubernetes, "Using Node Authorization").
const (
	nodeCommonNamePrefix = "system:node:"
	nodeOrganization     = "system:nodes"
)

// NodeCertificateOptions are the choices for reading a node's client certificate. Each
// zero field is a sensible default.
type NodeCertificateOptions struct {
	// RequireProviderID refuses a certificate without the provider ID's extension, such as
	// any that was issued by kube-controller-manager's built-in signer.
	RequireProviderID bool
	// Now is the clock by which the certificate must be valid; nil means time.Now. It is
	// checked because a connection may outlive the certificate that opened it.
	Now func() time.Time
}

// attestedNodeFromCertificate reads a node's identity from its client certificate, which the
// caller has verified.
func attestedNodeFromCertificate(cert *x509.Certificate, opts NodeCertificateOptions) (*AttestedNode, error) {
	if cert == nil {
		return nil, checkNodeCertificate.Refuse("no certificate", "a node's")
	}
	name, err := nodeOf(cert)
	if err != nil {
		return nil, err
	}
	now := wallclock.Or(opts.Now)()
	switch {
	case cert.IsCA:
		return nil, checkNodeCertificate.Refuse("a CA's certificate", "a node's")
	case now.Before(cert.NotBefore) || now.After(cert.NotAfter):
		return nil, checkNodeCertificate.Refuse("a certificate valid from "+cert.NotBefore.UTC().Format(time.RFC3339)+" to "+cert.NotAfter.UTC().Format(time.RFC3339),
			"one valid at "+now.UTC().Format(time.RFC3339))
	case !slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return nil, checkNodeCertificate.Refuse("a certificate without the usage client authentication", "one with it")
	case slices.ContainsFunc(cert.Extensions, func(e pkix.Extension) bool { return oid.SubjectAltName.Equal(e.Id) }):
		return nil, checkNodeCertificate.Refuse("subject alternative names", "none")
	}
	id, err := oid.ParseProviderID(cert.Extensions)
	if err != nil && (opts.RequireProviderID || !errors.Is(err, oid.CheckProviderIDMissing)) {
		return nil, &Error{Check: checkNodeCertificate, Got: "a missing or malformed provider ID", Want: "a provider ID", Err: err}
	}
	return &AttestedNode{Name: name, ProviderID: id}, nil
}

// AttestedNodeFromTLS reads a node's identity from the client certificate of a connection. The
// server must have verified the chain (tls.RequireAndVerifyClientCert, or
// tls.VerifyClientCertIfGiven), as VerifiedChains shows, to a CA that signs only for attested
// nodes: any other CA for clients can name a node that was never attested, and nothing in the
// certificate reveals that. If the cluster has no such CA, look the certificate up in the
// records of certificates issued through attestation ([AttestedNodeFromRecord]).
//
// The subject must be exactly one common name "system:node:<name>" and one organization
// "system:nodes". The certificate must not be a CA's, must be valid now, must explicitly
// allow client authentication, and must have no subject alternative names. The provider ID
// is that of the extension ([oid.ParseProviderID]), which must be well formed if present.
// Anything else is refused with "node-certificate".
//
// So is a connection that resumed a TLS session: its client has shown a ticket, which can be
// carried away and used elsewhere, and not the certificate's key. The server should make none
// (tls.Config.SessionTicketsDisabled).
//
// Don't use PeerCertificates, which any client signs for itself where the server only asks for a
// certificate (tls.RequestClientCert). Behind a proxy that ends TLS, verify the certificate
// that it passes on with x509.Certificate.Verify, and pass the chains as VerifiedChains.
func AttestedNodeFromTLS(state *tls.ConnectionState, opts NodeCertificateOptions) (*AttestedNode, error) {
	if state == nil || len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return nil, checkNodeCertificate.Refuse("a connection without a verified client certificate", "one")
	}
	if state.DidResume {
		return nil, checkNodeCertificate.Refuse("a TLS session that was resumed, without the certificate's key", "a full handshake, with a server that makes no session tickets")
	}
	return attestedNodeFromCertificate(state.VerifiedChains[0][0], opts)
}

// nodeOf returns the node's name from a subject that says nothing else.
func nodeOf(cert *x509.Certificate) (string, error) {
	// There are two attributes, one of them the organization: the common name below is the other,
	// or is missing.
	organization, organizations := asn1.ObjectIdentifier{2, 5, 4, 10}, 0
	for _, attribute := range cert.Subject.Names {
		if attribute.Type.Equal(organization) && attribute.Value == nodeOrganization {
			organizations++
		}
	}
	if organizations != 1 || len(cert.Subject.Names) != 2 {
		return "", checkNodeCertificate.Refuse("subject "+strconv.Quote(refusal.Text(cert.Subject.String())), "one common name and the organization "+nodeOrganization)
	}
	name, ok := strings.CutPrefix(cert.Subject.CommonName, nodeCommonNamePrefix)
	if !ok || !names.ValidNode(name) {
		return "", checkNodeCertificate.Refuse("common name "+strconv.Quote(refusal.Text(cert.Subject.CommonName)), nodeCommonNamePrefix+"<name>")
	}
	return name, nil
}

// CertificateRecord is the record of a node's client certificate that was issued through
// attestation: the members of a csr.IssuedRecord that have these names.
type CertificateRecord struct {
	// CredentialID is "X509SHA256=" and the hexadecimal SHA-256 of the certificate's DER.
	CredentialID string
	// NodeName is the node that the certificate was issued to.
	NodeName string
	// NodeUID is the UID of the Node object at that time; "" on a machine's first join,
	// before the Node exists.
	NodeUID string
	// Machine is the canonical identity of the machine that was verified.
	Machine string
	// MachineUID is the UID of the object that represented the machine; "" if there was
	// none.
	MachineUID string
	// ProviderID is the verified provider ID; it may be "". The certificate need not
	// have it: kube-controller-manager's built-in signer drops the extension.
	ProviderID string
}

// AttestedNodeFromRecord is [AttestedNodeFromTLS] with the machine from the certificate's record.
// The record must belong to this very certificate, and name a machine: a different credential ID
// or node name, two provider IDs that differ, and a record without a Machine, are refused with
// "node-certificate". A provider ID that the certificate lacks is the record's; one that the
// record lacks was not verified, and is refused.
func AttestedNodeFromRecord(cert *x509.Certificate, record *CertificateRecord, opts NodeCertificateOptions) (*AttestedNode, error) {
	node, err := attestedNodeFromCertificate(cert, opts)
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, checkNodeCertificate.Refuse("a certificate without a record", "one that was issued through attestation")
	}
	same, got, want := oid.SameProviderID(record.ProviderID, cmp.Or(node.ProviderID, record.ProviderID))
	switch id := credentialID(cert); {
	case record.CredentialID != id:
		return nil, checkNodeCertificate.Refuse("a record of credential ID "+refusal.OrNothing(refusal.Text(record.CredentialID)), id)
	case record.NodeName != node.Name:
		return nil, checkNodeCertificate.Refuse("a record of node "+refusal.OrNothing(refusal.Text(record.NodeName)), node.Name)
	case !same:
		return nil, checkNodeCertificate.Refuse("a record of provider ID "+got, want)
	case record.Machine == "":
		return nil, checkNodeCertificate.Refuse("a record without a machine", "one of a machine that was verified")
	}
	node.UID, node.Machine, node.MachineUID, node.ProviderID = record.NodeUID, record.Machine, record.MachineUID, record.ProviderID
	return node, nil
}

// credentialID returns kube-apiserver's name for a client certificate (k8s.io/apiserver,
// authentication/request/x509).
func credentialID(cert *x509.Certificate) string {
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(cert.Raw))
}
