package csr

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"time"
)

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
