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
	var all Errors
	refuse := func(rule Check, got, want string) {
		all = append(all, &Error{Check: rule, Got: got, Want: want})
	}
	if checked.filedUnder != SignerKubeletServing { // a policy passes that for a node's own request alone
		refuse(CheckInheritedPurpose, "a request by "+checked.requester.Class.String()+" "+refusal.Quote(checked.requester.NodeName)+" to "+refusal.Quote(checked.signerName),
			"one by node "+refusal.Quote(checked.nodeName)+" to "+SignerKubeletServing)
	}
	if record == nil || !record.ClientOf(checked.nodeName, checked.credentialID) {
		refuse(CheckCredential, refusal.OrNothing(refusal.Quote(checked.credentialID)), "a client certificate that was issued to this node through attestation")
		return nil, all
	}
	if now.Before(record.NotBefore) || now.After(record.NotAfter) {
		refuse(CheckInheritedExpired, "a client certificate from "+record.NotBefore.UTC().Format(time.RFC3339)+" to "+record.NotAfter.UTC().Format(time.RFC3339),
			"one that is valid at "+now.UTC().Format(time.RFC3339))
	}
	unknown := checked.own.holdAgainst(record, refuse)
	if len(all) > 0 {
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
// was issued to. The error says that the two cannot be compared, or not yet.
func (own ownMachine) holdAgainst(record *IssuedRecord, refuse func(rule Check, got, want string)) error {
	if record.Machine == "" {
		refuse(CheckInheritedMachine, "a record without a machine", "the machine's identity")
	}
	if record.MachineUID != own.uid {
		refuse(CheckInheritedMachine, "a certificate of the machine with UID "+refusal.Quote(record.MachineUID), refusal.Quote(own.uid))
	}
	if record.ProviderID != "" && own.providerID != "" && record.ProviderID != own.providerID {
		refuse(CheckInheritedMachine, "a certificate of machine "+refusal.Quote(record.ProviderID), refusal.Quote(own.providerID))
	}
	if own.identity != "" && record.Machine != own.identity {
		refuse(CheckInheritedMachine, "a certificate of machine "+refusal.Quote(record.Machine), refusal.Quote(own.identity))
	}
	if own.uid == "" && own.identity == "" {
		switch {
		case own.providerID == "":
			return refusal.Config("UID, provider ID or identity of the machine in the inventory", "", "one of them")
		case record.ProviderID == "":
			refuse(CheckInheritedMachine, "a certificate without a provider ID", refusal.Quote(own.providerID))
		}
	}
	if record.NodeUID == own.nodeUID {
		return nil
	}
	if record.NodeUID == "" || own.nodeUID == "" {
		return Retry(fmt.Errorf("the certificate was issued for Node UID %s, and the Node's is %s", refusal.Quote(record.NodeUID), refusal.Quote(own.nodeUID)))
	}
	refuse(CheckInheritedNode, "a certificate for Node UID "+refusal.Quote(record.NodeUID), refusal.Quote(own.nodeUID))
	return nil
}
