package csr

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// IssuedRecord is what to remember about an issued certificate. A node that later asks for a
// serving certificate under [SignerKubeletServing] is recognised by it: the request's
// credential ID must be one that was issued to this node, and to the machine that is this
// node now; see [Policy.IssuedRecord] and [Checked.Inherit]. Keep it until NotAfter has
// passed, or until the machine is gone. It holds nothing secret.
type IssuedRecord struct {
	// CredentialID is "X509SHA256=" and the hexadecimal SHA-256 of the certificate's DER, as
	// kube-apiserver states it; see [CredentialID]. It is "" while there is no certificate
	// yet; see [Attested.Record].
	CredentialID string
	// NodeName is the node that the certificate was issued to.
	NodeName string
	// SignerName is the signer under which it was asked for.
	SignerName string
	// Machine is the canonical identity of the machine that was verified.
	Machine string
	// MachineUID is the UID of the machine in the inventory when the certificate was issued
	// ([Machine], [Grant]); "" if it has none. A node's name may pass to another machine
	// while the certificate of the first is still valid, and then the UIDs differ.
	MachineUID string
	// NodeUID is the UID of the Node object that the certificate was issued for. It is ""
	// for a node's first certificate, which is older than the Node: the keeper of the record
	// then writes it, once, when the Node first appears, and never changes it. A Node that
	// was deleted and recreated has another UID, and the certificate no longer counts for
	// it.
	NodeUID string
	// ProviderID is the provider ID that was vouched for; "" if none was. Another signer may
	// have left it out of the certificate: Kubernetes' own does.
	ProviderID string
	// RequestUID is the UID that the API server gave the request object.
	RequestUID string
	// KeyResidence says where the evidence has shown the certificate's key to be: "TPM" for a
	// key that cannot leave its TPM, "Software" for one that can be copied, "" if it shows
	// nothing about that. [Attested.Record] leaves it empty: the keeper of the record, which has the
	// kind's result, writes it.
	KeyResidence string `json:",omitempty"`
	// FiledWith is the credential ID of the client certificate with which the API server knew the
	// requester; "" if that was another credential, such as a bootstrap token.
	FiledWith string `json:",omitempty"`
	// SPKIHash is the SHA-256 of the certificate's SubjectPublicKeyInfo.
	SPKIHash [32]byte
	// NotBefore is the first second of the certificate's validity.
	NotBefore time.Time
	// NotAfter is the last second of the certificate's validity. Without a certificate it is
	// the latest that the certificate may have, or the zero time if nothing bounds it.
	NotAfter time.Time
	// LastEnd is until when the node's name is kept for the machine, if [Policy.IssuedRecord] says
	// so: a serving certificate that is inherited may end after NotAfter, and by then at the
	// latest. It is not stored.
	LastEnd time.Time `json:"-"`
}

// CredentialID returns the name by which kube-apiserver knows a client certificate:
// "X509SHA256=" and the SHA-256 of its DER in lower-case hexadecimal (k8s.io/apiserver,
// authentication/request/x509). It is in spec.extra of the requests that are filed with the
// certificate, under [ExtraCredentialID].
//
// It is "" if certificate is nil.
func CredentialID(certificate *x509.Certificate) string {
	if certificate == nil {
		return ""
	}
	return fmt.Sprintf(certificateIDPrefix+"%x", sha256.Sum256(certificate.Raw))
}

const certificateIDPrefix = "X509SHA256="

// isCertificateID reports whether an API server's credential ID is that of a certificate.
func isCertificateID(id string) bool {
	digest, ok := strings.CutPrefix(id, certificateIDPrefix)
	return ok && names.IsHex(digest, 2*sha256.Size)
}

// ClientOf reports whether this is the record of a client certificate that was issued to the
// node through attestation, and has this credential ID. The record of a recovery
// certificate, or of one from [SignerClientInsecure], is not. Times are not compared:
// kube-apiserver never states a credential that has expired.
func (r *IssuedRecord) ClientOf(nodeName, credentialID string) bool {
	if r == nil {
		return false
	}
	purpose, provider, _ := parseSignerName(r.SignerName)
	return purpose == PurposeClient && provider != providerInsecure &&
		nodeName != "" && r.NodeName == nodeName &&
		credentialID != "" && r.CredentialID == credentialID
}

// checkIssuedCertificate: a certificate that another signer made is for the request that
// was verified, and says no more than that.
const checkIssuedCertificate Check = "issued-certificate"

// Record returns the record of a certificate that any signer, for example Kubernetes' own,
// has made for an attested request; [CA.Issue] returns the record of its own certificates.
// If certificate is nil, it is the record of the request, to be stored before the request is
// approved: with it, [IssuedRecord.Completed] recognises the certificate that comes later.
// The error is that of Completed or of [Checked.CheckMachine], an [*Error] of
// [CheckProviderResult] if nothing is attested or, without a certificate, that of a request that
// [Attested.Decision] does not approve because of its end.
func (a *Attested) Record(certificate *x509.Certificate) (IssuedRecord, error) {
	c := a.sound()
	if c == nil {
		return IssuedRecord{}, noResult()
	}
	if a.fault != nil {
		return IssuedRecord{}, a.fault
	}
	if certificate == nil {
		return a.record(), a.checkEnd(c.now())
	}
	return a.record().Completed(certificate)
}

// record returns the record without its certificate.
func (a *Attested) record() IssuedRecord {
	c, v := a.checked, &a.grant
	r := IssuedRecord{NodeName: c.nodeName, SignerName: c.signerName, Machine: a.machine, MachineUID: cmp.Or(c.machine.UID, v.MachineUID), NodeUID: c.machine.NodeUID,
		ProviderID: v.ProviderID, RequestUID: c.uid, SPKIHash: sha256.Sum256(c.pkcs10.CSR.RawSubjectPublicKeyInfo), NotAfter: v.NotAfter}
	if isCertificateID(c.credentialID) {
		r.FiledWith = c.credentialID
	}
	return r
}

// with returns the record with its certificate, which is checked already.
func (r IssuedRecord) with(certificate *x509.Certificate) IssuedRecord {
	r.CredentialID, r.NotBefore, r.NotAfter = CredentialID(certificate), certificate.NotBefore, certificate.NotAfter
	return r
}

// Completed returns the record of a request with what its certificate adds: credential ID
// and validity. The certificate must have the request's key, the subject and the usage of
// the record's signer and node, no provider ID other than the one that was vouched for, and
// no right to issue others, and must end no later than the record says. The error is an
// [*Error] of "issued-certificate". Completed does not check that the signer made it:
// take it from status.certificate, which an API server lets only the signer write.
func (r IssuedRecord) Completed(certificate *x509.Certificate) (IssuedRecord, error) {
	if certificate == nil {
		return IssuedRecord{}, &Error{Check: checkIssuedCertificate, Got: "no certificate", Want: "one"}
	}
	purpose, _, _ := parseSignerName(r.SignerName)
	commonName, organization := purpose.SubjectNames(r.NodeName)
	subject, spki := certificate.Subject, sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	providerID, err := oid.ParseProviderID(certificate.Extensions)
	same, got, want := oid.SameProviderID(providerID, r.ProviderID)
	const check = checkIssuedCertificate
	if err := (faults{
		{spki != r.SPKIHash, check, "key " + refusal.Hex(spki[:]), refusal.Hex(r.SPKIHash[:])},
		{commonName == "" || subject.CommonName != commonName || !slices.Equal(subject.Organization, []string{organization}) || len(subject.Names) != 2,
			check, "subject " + refusal.Quote(subject.String()), "CN=" + commonName + ",O=" + organization},
		{certificate.IsCA, check, "a CA", "a certificate of a node"},
		{!slices.Equal(certificate.ExtKeyUsage, []x509.ExtKeyUsage{purposes[purpose].extKeyUsage}) || len(certificate.UnknownExtKeyUsage) > 0,
			check, "other extended key usages", "those of " + r.SignerName},
		{err != nil && !errors.Is(err, oid.CheckProviderIDMissing) || providerID != "" && !same, check, "provider ID " + got, want},
		{!r.NotAfter.IsZero() && certificate.NotAfter.After(r.NotAfter), check, "an end at " + rfc3339(certificate.NotAfter), rfc3339(r.NotAfter) + " at the latest"},
	}).first(); err != nil {
		return IssuedRecord{}, err
	}
	return r.with(certificate), nil
}

// Rules of inherited attestation.
const (
	// checkInheritedPurpose: the request is a node's own, filed under
	// [SignerKubeletServing].
	checkInheritedPurpose Check = "inherited-purpose"
	// checkInheritedExpired: the client certificate that a serving request inherits
	// from is valid now.
	checkInheritedExpired Check = "inherited-expired"
	// checkInheritedMachine: the client certificate was issued to the machine that is the
	// node now, according to everything that both the record and the inventory say about it,
	// and at least one such item is the same.
	checkInheritedMachine Check = "inherited-machine"
	// checkInheritedNode: the client certificate was issued for the Node object that has the
	// node's name now, if the inventory knows it.
	checkInheritedNode Check = "inherited-node"
)

// minInherited is the shortest time that an inherited certificate lasts.
const minInherited = MinLifetime / 2

// Inherit decides about a kubelet's own request for a serving certificate, which
// carries no evidence: it inherits the attestation of the client certificate that the
// kubelet used. kube-apiserver states that certificate in spec.extra ([ExtraCredentialID]),
// and [Policy.IssuedRecord] has found its record ([IssuedRecord]).
//
// It is a pure function of its arguments: it sees the request and the record as the policy
// saw them. The policy has compared the two: the record is of a client certificate (neither
// a recovery certificate nor one of the insecure signer) with this credential ID, issued to
// the very node that asks. It must not have expired at now. Broken rules, all of them, are
// returned as [Errors].
//
// A node's name may have passed to another machine while the old machine's certificate is
// still valid, so the name alone proves nothing. The record of the
// certificate's machine is compared with the inventory's entry for the machine that is
// the node now ([Machine]): the UIDs must be equal, even if one side has none; provider IDs
// and identities must be equal if both sides have one; and at least one of the three must be
// present and equal. An inventory that states none of the three cannot tell machines apart:
// the error is [refusal.CheckConfig], and no request is denied for it. Likewise, NodeUID
// must be that of the Node that has the name now. If only one side has it, the error is
// [refusal.ErrRetry]: the keeper of the record writes it when the Node appears.
//
// The result vouches for the names and addresses of the inventory's machine and no others,
// for no provider ID beyond the recorded one, and for no longer than the client certificate
// lasts. Where the record has a LastEnd, it vouches for [Policy.MaxLifetime] from the beginning
// of the client certificate, and not beyond LastEnd: Kubernetes' own signer gives both certificates
// the same lifetime, and so the later one ends later. In the client certificate's last half minute the error is [refusal.ErrRetry]: a kubelet that gets so short a
// lifetime asks again at once. Anyone who has stolen the client certificate's key can ask in
// this way too.
func (c *Checked) Inherit(now time.Time) (*Attested, error) {
	if c == nil || c.pkcs10 == nil {
		return nil, Errors{{Check: checkNotChecked, Got: "a request that no policy has checked"}}
	}
	by := c.requester // a policy accepts kubelet-serving only for a node's own request
	all := faults{{c.filedUnder != SignerKubeletServing, checkInheritedPurpose,
		"a request by " + by.Class.String() + " " + refusal.Quote(by.NodeName) + " to " + refusal.Quote(c.signerName),
		"one by node " + refusal.Quote(c.nodeName) + " to " + SignerKubeletServing}}.all()
	record := c.record
	if record == nil {
		return nil, append(all, &Error{Check: CheckCredential, Got: refusal.OrNothing(refusal.Quote(c.credentialID)),
			Want: "a client certificate that was issued to this node through attestation"})
	}
	all = append(all, faults{{now.Before(record.NotBefore) || now.After(record.NotAfter), checkInheritedExpired,
		"a client certificate from " + rfc3339(record.NotBefore) + " to " + rfc3339(record.NotAfter),
		"one that is valid at " + rfc3339(now)}}.all()...)
	different, unknown := c.machine.holdAgainst(record)
	if all = append(all, different...); len(all) > 0 {
		return nil, all
	}
	if left := record.NotAfter.Sub(now); unknown == nil && left < minInherited {
		unknown = refusal.Retry(fmt.Errorf("the client certificate ends in %s, and the serving certificate would with it", left))
	}
	if unknown != nil {
		return nil, unknown
	}
	grant := Grant{ProviderID: record.ProviderID, DNSNames: c.dnsNames, IPAddresses: c.ipAddresses, NotAfter: c.inheritedEnd(record)}
	return c.Vouch(record.Machine, grant, nil), nil
}

// holdAgainst compares the machine that is the node now with the one that a certificate was
// issued to. unknown says that the two cannot be compared, or not yet.
func (m *Machine) holdAgainst(r *IssuedRecord) (different Errors, unknown error) {
	const certificateOf = "a certificate of machine "
	provider := ProviderOf(r.SignerName)
	byProviderID := m.UID == "" && m.Identity == "" // by nothing else
	incomparable := byProviderID && m.KnownProviderID() == ""
	same, recorded, now := oid.SameProviderID(r.ProviderID, m.ProviderID)
	machine, identity := refusal.QuoteApart(r.Machine, m.Identity, nil)
	different = faults{
		{r.Machine == "", checkInheritedMachine, "a record without a machine", "the machine's identity"},
		{r.MachineUID != m.UID, checkInheritedMachine,
			"a certificate of the machine with UID " + refusal.Quote(r.MachineUID), refusal.Quote(m.UID)},
		{r.ProviderID != "" && m.ProviderID != "" && !same, checkInheritedMachine,
			certificateOf + recorded, now},
		{m.Identity != "" && r.Machine != m.Identity, checkInheritedMachine,
			certificateOf + machine, identity},
		{provider != "" && m.Provider != "" && provider != m.Provider, checkInheritedMachine,
			certificateOf + refusal.Quote(r.Machine) + " by " + provider, "one by " + refusal.Quote(m.Provider)},
		{byProviderID && !incomparable && r.ProviderID == "", checkInheritedMachine,
			"a certificate without a provider ID", refusal.Quote(m.ProviderID)},
		{r.NodeUID != "" && m.NodeUID != "" && r.NodeUID != m.NodeUID && !incomparable, checkInheritedNode,
			"a certificate for Node UID " + refusal.Quote(r.NodeUID), refusal.Quote(m.NodeUID)},
	}.all()
	switch {
	case incomparable:
		unknown = refusal.Config("UID, provider ID or identity of the machine in the inventory", "", "one of them")
	case r.NodeUID != m.NodeUID:
		unknown = refusal.Retry(fmt.Errorf("the certificate was issued for Node UID %s, and the Node's is %s",
			refusal.Quote(r.NodeUID), refusal.Quote(m.NodeUID)))
	}
	return different, unknown
}
