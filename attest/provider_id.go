package attest

import (
	"cmp"

	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/internal/typednil"
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
	m := r.checked.Machine()
	return typednil.OrZero(m).ProviderID
}

// statedProviderID is the whole provider ID that the evidence states.
func (r *Result) statedProviderID() string {
	if d, ok := r.Details.(interface{ ProviderID() string }); ok && !typednil.Is(d) {
		return d.ProviderID()
	}
	return ""
}

// contradictedBy refuses a provider ID that the evidence contradicts: by the one that it states, or by
// the machine's identity. The requester is told neither.
func (r *Result) contradictedBy(id, source string) error {
	stated := r.statedProviderID()
	if !oid.ContradictsProviderID(id, string(r.Machine), stated) {
		return nil
	}
	return &Error{Check: checkProviderIDEvidence, Got: cmp.Or(stated, "machine "+string(r.Machine)) + ", by the evidence",
		Want: refusal.Quote(id) + ", as " + source + " has it for node " + r.NodeName, Err: CheckMembership}
}

// knowProviderID holds the inventory against the evidence, and sets Granted.ProviderID to the machine's
// provider ID as far as these two have it.
func (r *Result) knowProviderID() error {
	own := r.inventoryProviderID()
	if err := r.contradictedBy(own, "the inventory"); err != nil {
		return err
	}
	r.Granted.ProviderID = names.KnownProviderID(cmp.Or(own, r.statedProviderID()))
	return nil
}

// reconcileProviderID returns the provider ID that is vouched for, held against what evidence and request
// say; csr.Checked.Vouch holds it against the inventory. No kind and no authorizer can leave this out.
// Two that differ are refused; "" means that none is vouched for.
func (r *Result) reconcileProviderID(vouched string) (string, error) {
	claimed := string(r.ClaimedProviderID)
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
