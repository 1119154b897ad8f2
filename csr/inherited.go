package csr

import (
	"fmt"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// Rules of inherited attestation.
const (
	// CheckInheritedPurpose: the request is a node's own, filed under
	// [SignerKubeletServing].
	CheckInheritedPurpose Check = "inherited-purpose"
	// CheckInheritedExpired: the client certificate that a serving request inherits
	// from is valid now.
	CheckInheritedExpired Check = "inherited-expired"
	// CheckInheritedMachine: the client certificate was issued to the machine that is
	// the node now, by everything that both the record and the inventory say of it,
	// and at least one such thing is the same.
	CheckInheritedMachine Check = "inherited-machine"
	// CheckInheritedNode: the client certificate was issued for the Node object that
	// has the node's name now, where the inventory knows it.
	CheckInheritedNode Check = "inherited-node"
)

// InheritAttestation decides about a kubelet's own request for a serving
// certificate, which carries no evidence: it inherits the attestation of the client
// certificate with which the kubelet came. kube-apiserver states that certificate in
// spec.extra ([ExtraCredentialID]), and record must be what was recorded when it was
// issued ([IssuedRecord]); nil means that there is no such record.
//
// It is a pure function of its arguments: of the request it sees what the policy saw.
// The request has passed a [Policy], and the record is held against it once more here:
// it is the record of a client certificate (not a recovery certificate, nor one of the
// insecure signer) with this credential ID, issued to the very node that asks, and not
// expired at now. Errors, all of them, are returned as [Errors].
//
// A node's name may have gone to another machine while the old machine's certificate is
// still valid, so the name alone gives nothing. What the record says of the certificate's
// machine is compared with what the inventory says of the machine that is the node now
// ([Machine]): the UIDs are equal, also where one side has none; provider IDs and
// identities are equal where both sides have one; and at least one of the three is there
// and equal. An inventory that states none of the three can tell no machine from
// another: the error is [refusal.CheckConfig], and no request is denied for it. In the same way
// NodeUID is that of the Node that has the name now. Where only one side has it the error
// is [ErrRetry]: whoever keeps the record writes it when the Node appears.
//
// The result vouches for the names and addresses of the inventory's machine and no
// others, for no provider ID beyond the recorded one, and for no longer than the
// client certificate lasts. Whoever has stolen the client certificate's key can ask
// in this way too.
func InheritAttestation(checked *Checked, record *IssuedRecord, now time.Time) (*Attested, error) {
	if checked == nil || checked.pkcs10 == nil {
		return nil, Errors{{Check: CheckNotChecked, Got: "a request that no policy has checked"}}
	}
	by := checked.requester // a policy passes kubelet-serving for a node's own request alone
	all := faults{{checked.filedUnder != SignerKubeletServing, CheckInheritedPurpose,
		"a request by " + by.Class.String() + " " + refusal.Quote(by.NodeName) + " to " + refusal.Quote(checked.signerName),
		"one by node " + refusal.Quote(checked.nodeName) + " to " + SignerKubeletServing}}.all()
	if record == nil || !record.ClientOf(checked.nodeName, checked.credentialID) {
		return nil, append(all, &Error{Check: CheckCredential, Got: refusal.OrNothing(refusal.Quote(checked.credentialID)),
			Want: "a client certificate that was issued to this node through attestation"})
	}
	all = append(all, faults{{now.Before(record.NotBefore) || now.After(record.NotAfter), CheckInheritedExpired,
		"a client certificate from " + rfc3339(record.NotBefore) + " to " + rfc3339(record.NotAfter),
		"one that is valid at " + rfc3339(now)}}.all()...)
	different, unknown := checked.own.holdAgainst(record)
	if all = append(all, different...); len(all) > 0 {
		return nil, all
	}
	if unknown != nil {
		return nil, unknown
	}
	v := checked.Vouch(record.Machine)
	v.ProviderID, v.NotAfter = record.ProviderID, record.NotAfter
	v.DNSNames, v.IPAddresses = checked.DNSNames(), checked.IPAddresses()
	return &Attested{Checked: checked, Verified: v}, nil
}

// holdAgainst compares the machine that is the node now with the one that a certificate
// was issued to. unknown says that the two cannot be compared, or not yet.
func (own ownMachine) holdAgainst(r *IssuedRecord) (different Errors, unknown error) {
	const certificateOf = "a certificate of machine "
	byProviderID := own.uid == "" && own.identity == "" // by nothing else
	incomparable := byProviderID && own.providerID == ""
	different = faults{
		{r.Machine == "", CheckInheritedMachine, "a record without a machine", "the machine's identity"},
		{r.MachineUID != own.uid, CheckInheritedMachine,
			"a certificate of the machine with UID " + refusal.Quote(r.MachineUID), refusal.Quote(own.uid)},
		{r.ProviderID != "" && own.providerID != "" && r.ProviderID != own.providerID, CheckInheritedMachine,
			certificateOf + refusal.Quote(r.ProviderID), refusal.Quote(own.providerID)},
		{own.identity != "" && r.Machine != own.identity, CheckInheritedMachine,
			certificateOf + refusal.Quote(r.Machine), refusal.Quote(own.identity)},
		{byProviderID && !incomparable && r.ProviderID == "", CheckInheritedMachine,
			"a certificate without a provider ID", refusal.Quote(own.providerID)},
		{r.NodeUID != "" && own.nodeUID != "" && r.NodeUID != own.nodeUID && !incomparable, CheckInheritedNode,
			"a certificate for Node UID " + refusal.Quote(r.NodeUID), refusal.Quote(own.nodeUID)},
	}.all()
	switch {
	case incomparable:
		unknown = refusal.Config("UID, provider ID or identity of the machine in the inventory", "", "one of them")
	case r.NodeUID != own.nodeUID:
		unknown = Retry(fmt.Errorf("the certificate was issued for Node UID %s, and the Node's is %s",
			refusal.Quote(r.NodeUID), refusal.Quote(own.nodeUID)))
	}
	return different, unknown
}
