package csr

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/netip"
	"time"
)

// Machine is what the operator's own inventory says of the machine that is to be a
// node: a Machine of the Cluster API, an entry of a list, a row of a database. It
// must not come from the Node object, which the kubelet writes itself, nor from the
// request.
type Machine struct {
	// Name is the machine's name in the inventory, for people and logs.
	Name string
	// UID tells the machine from another one that has its name later; "" where the
	// inventory has none. Policies do not read it; it is recorded with every
	// certificate that is issued ([IssuedRecord]) and compared by
	// [InheritAttestation].
	UID string
	// Identity is the canonical identity that is registered for the machine, such as
	// "ek:sha256:<hex>"; "" where the inventory does not keep it. It is compared by
	// [InheritAttestation] alone: who may be which machine is for the provider to
	// decide.
	Identity string
	// NodeUID is the UID that the API server gave the Node object named NodeName; ""
	// where there is no such Node, or where the inventory does not follow Nodes. It
	// is recorded and compared as UID is. It is the one thing here that comes from
	// the Node: a kubelet cannot write it.
	NodeUID string
	// NodeName is the one node that the machine may be. "" leaves it open: then
	// what the inventory answers for a node name is for that node name.
	NodeName string
	// ProviderID is the machine's provider ID; "" where it is not known yet. A
	// request that claims another one is refused.
	ProviderID string
	// DNSNames are the names that the machine may serve under, in any case of
	// letters and without a dot at the end: requests and certificates have none
	// there, so "node-1.local." matches no name. An inventory that writes such a dot
	// has it taken off before the names come here. The node's name is among them only
	// if it is listed.
	DNSNames []string
	// IPAddresses are the addresses that the machine may serve under. IPv4
	// addresses may be mapped into IPv6. Addresses that [Policy] reserves are
	// refused even where they are listed.
	IPAddresses []netip.Addr
	// BootstrapReady says that the machine has been given what it needs to join
	// (the Cluster API's condition BootstrapConfigReady). A machine that is not
	// ready gets no certificate.
	BootstrapReady bool
}

// IssuedRecord is what to remember of an issued certificate. A node that later asks
// for a serving certificate under [SignerKubeletServing] is recognised by it: the
// request's credential ID must be one that was issued to this node, and to the machine
// that is this node now; see [Policy.Records] and [InheritAttestation]. Keep it until NotAfter has passed, or until the machine goes.
// It holds nothing secret.
type IssuedRecord struct {
	// CredentialID is "X509SHA256=" and the hexadecimal SHA-256 of the
	// certificate's DER, as kube-apiserver states it; see [CredentialID].
	CredentialID string
	// NodeName is the node that the certificate was issued to.
	NodeName string
	// SignerName is the signer under which it was asked for.
	SignerName string
	// Machine is the canonical identity of the machine that was verified.
	Machine string
	// MachineUID is the UID of the machine in the inventory when the certificate was
	// issued ([Machine]); "" where the inventory has none. A node's name may go to
	// another machine while the certificate of the first is still valid, and then the
	// UIDs differ.
	MachineUID string
	// NodeUID is the UID of the Node object that the certificate was issued for. It
	// is "" for a node's first certificate, which is older than the Node: whoever
	// keeps the record writes it then, once, when the Node first appears, and
	// never changes it. A Node that was deleted and made again has another UID, and
	// the certificate counts for it no more.
	NodeUID string
	// ProviderID is the provider ID in the certificate; "" where it has none.
	ProviderID string
	// SPKIHash is the SHA-256 of the certificate's SubjectPublicKeyInfo.
	SPKIHash [32]byte
	// NotBefore is the first second of the certificate's validity.
	NotBefore time.Time
	// NotAfter is the last second of the certificate's validity.
	NotAfter time.Time
}

// CredentialID returns the name by which kube-apiserver knows a client
// certificate: "X509SHA256=" and the SHA-256 of its DER in lower-case hexadecimal
// (k8s.io/apiserver, authentication/request/x509). It stands in spec.extra of the
// requests that are filed with the certificate, under [ExtraCredentialID].
//
// It is "" where there is no certificate.
func CredentialID(certificate *x509.Certificate) string {
	if certificate == nil {
		return ""
	}
	return credentialID(certificate.Raw)
}

func credentialID(der []byte) string {
	const prefix = "X509SHA256="
	digest := sha256.Sum256(der)
	b := make([]byte, 0, len(prefix)+2*len(digest))
	return string(hex.AppendEncode(append(b, prefix...), digest[:]))
}

// ClientOf reports whether this is the record of a client certificate that was
// issued to the node through attestation, and has this credential ID. The record of
// a recovery certificate, or of one from [SignerClientInsecure], is not. Times are
// not compared: kube-apiserver states no credential that has expired.
func (r *IssuedRecord) ClientOf(nodeName, credentialID string) bool {
	purpose, provider, _ := parseSignerName(r.SignerName)
	return purpose == PurposeClient && provider != ProviderInsecure &&
		nodeName != "" && r.NodeName == nodeName &&
		credentialID != "" && r.CredentialID == credentialID
}
