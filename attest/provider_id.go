package attest

import (
	"cmp"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	// checkProviderID: the request claims another provider ID than the machine's. While none is
	// known, always together with [refusal.ErrRetry].
	checkProviderID Check = "provider-id"
	// checkProviderIDEvidence: the provider ID that the inventory or the authorizer has for the node
	// is not that of the machine that the evidence shows.
	checkProviderIDEvidence Check = "provider-id-evidence"
)

// inventoryProviderID is the provider ID that the inventory has for the node's name.
func (r *Result) inventoryProviderID() string {
	if r.checked == nil {
		return ""
	}
	if m := r.checked.Machine(); m != nil {
		return m.ProviderID
	}
	return ""
}

// statedProviderID is the whole provider ID that the evidence states.
func (r *Result) statedProviderID() string {
	if d, ok := r.Details.(interface{ ProviderID() string }); ok {
		return d.ProviderID()
	}
	return ""
}

// contradictedBy refuses a provider ID that the evidence contradicts, by the provider ID or the identity
// in it. The requester sees neither.
func (r *Result) contradictedBy(id, source string) error {
	stated := r.statedProviderID()
	if !oid.ContradictsProviderID(id, string(r.Machine), stated) {
		return nil
	}
	return &Error{Check: checkProviderIDEvidence, Got: cmp.Or(stated, "machine "+string(r.Machine)) + ", by the evidence",
		Want: refusal.Quote(id) + ", as " + source + " has it for node " + r.NodeName, Err: CheckMembership}
}

// knowProviderID compares the inventory with the evidence, and sets Granted.ProviderID to the machine's
// provider ID if either has one.
func (r *Result) knowProviderID() error {
	own := r.inventoryProviderID()
	if err := r.contradictedBy(own, "the inventory"); err != nil {
		return err
	}
	r.Granted.ProviderID = names.KnownProviderID(cmp.Or(own, r.statedProviderID()))
	return nil
}

// reconcileProviderID compares the provider ID that the authorizer vouched for with evidence and request;
// csr.Checked.Vouch compares it with the inventory. It refuses two that differ, and returns the one to
// grant, "" for none.
func (r *Result) reconcileProviderID(vouched string) (string, error) {
	claimed := r.ClaimedProviderID.Unproven()
	if err := r.contradictedBy(vouched, "the authorizer"); err != nil {
		return "", err
	}
	same, got, want := oid.SameProviderID(cmp.Or(claimed, vouched), vouched)
	if same {
		return names.KnownProviderID(vouched), nil
	}
	if cmp.Or(vouched, r.inventoryProviderID(), r.statedProviderID()) == "" {
		return "", &Error{Check: checkProviderID, Got: got, Want: "one that inventory, authorizer or evidence has: none is known yet", Err: refusal.ErrRetry}
	}
	return "", &Error{Check: checkProviderID, Got: got, Want: want}
}
