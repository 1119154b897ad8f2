package csr

import (
	"github.com/nodeattest/nodeattest/refusal"
	"time"
)

// Rules of inherited attestation.
const (
	// RuleInheritedPurpose: the request is a node's own, filed under
	// [SignerKubeletServing].
	RuleInheritedPurpose Rule = "inherited-purpose"
	// RuleInheritedExpired: the client certificate that a serving request inherits
	// from is valid now.
	RuleInheritedExpired Rule = "inherited-expired"
	// RuleInheritedMachine: the machine that the record names is still the one in the
	// inventory.
	RuleInheritedMachine Rule = "inherited-machine"
)

// InheritAttestation decides about a kubelet's own request for a serving
// certificate, which carries no evidence: it inherits the attestation of the client
// certificate with which the kubelet came. kube-apiserver states that certificate in
// spec.extra ([ExtraCredentialID]), and record must be what was recorded when it was
// issued ([IssuedRecord]); nil means that there is no such record.
//
// It is a pure function of its arguments. The request has passed a [Policy], and the
// record is held against it once more here: it is the record of a client certificate
// (not a recovery certificate, nor one of the insecure signer) with this credential
// ID, issued to the very node that asks, not expired at now, and its provider ID is
// the inventory's where both are known. Violations, all of them, are returned as
// [Violations].
//
// The result vouches for the names and addresses of the inventory's machine and no
// others, for no provider ID beyond the recorded one, and for no longer than the
// client certificate lasts. Whoever has stolen the client certificate's key can ask
// in this way too.
func InheritAttestation(checked *Checked, record *IssuedRecord, now time.Time) (*Attested, error) {
	if checked == nil || checked.pkcs10 == nil {
		return nil, Violations{{Check: RuleNotChecked, Got: "a request that no policy has checked"}}
	}
	var all Violations
	refuse := func(rule Rule, got, want string) {
		all = append(all, &Violation{Check: rule, Got: got, Want: want})
	}
	if checked.signerName != SignerKubeletServing || checked.filedUnder != SignerKubeletServing ||
		checked.requester.Class != RequesterNode || checked.requester.NodeName != checked.nodeName {
		refuse(RuleInheritedPurpose, "a request by "+checked.requester.Class.String()+" "+refusal.Quote(checked.requester.NodeName)+" to "+refusal.Quote(checked.signerName),
			"one by node "+refusal.Quote(checked.nodeName)+" to "+SignerKubeletServing)
	}
	id := checked.request.CredentialID()
	if record == nil || !record.ClientOf(checked.nodeName, id) {
		refuse(RuleCredential, refusal.OrNothing(refusal.Quote(id)), "a client certificate that was issued to this node through attestation")
		return nil, all
	}
	if now.Before(record.NotBefore) || now.After(record.NotAfter) {
		refuse(RuleInheritedExpired, "a client certificate from "+record.NotBefore.UTC().Format(time.RFC3339)+" to "+record.NotAfter.UTC().Format(time.RFC3339),
			"one that is valid at "+now.UTC().Format(time.RFC3339))
	}
	if record.Machine == "" {
		refuse(RuleInheritedMachine, "a record without a machine", "the machine's identity")
	}
	if own := checked.ownProviderID; own != "" && record.ProviderID != "" && own != record.ProviderID {
		refuse(RuleInheritedMachine, "a record of machine "+refusal.Quote(record.ProviderID), refusal.Quote(own))
	}
	if len(all) > 0 {
		return nil, all
	}
	v := checked.Vouch(record.Machine)
	v.ProviderID, v.NotAfter = record.ProviderID, record.NotAfter
	v.DNSNames, v.IPAddresses = checked.DNSNames(), checked.IPAddresses()
	return &Attested{Checked: checked, Verified: v}, nil
}
