package membership

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// joining is the state of one verification.
type joining struct {
	f        *FirstUse
	r        *attest.Result
	claim    Claim
	seen     *Record   // of the name, as read or reserved; nil for no record
	newcomer bool      // the name was free
	notAfter time.Time // the latest end of its certificate
	// requested is the record of the request, used while there is no certificate.
	requested *csr.IssuedRecord
}

// look checks the claim against the records, which may be stale, and, if ask is set, calls NodeExists for
// a free name. The records of machine and UID are read only for a hello: for an answer Reserve checks
// them.
func (j *joining) look(ctx context.Context, in Lookups, ask, stale bool) (err error) {
	var h Held
	h.Name, err = in.Lookup(ctx, j.claim.NodeName)
	hello := j.r.Stage != attest.StageAnswer
	if err == nil && hello {
		h.Machine, err = in.LookupMachine(ctx, j.claim.Machine)
	}
	if err == nil && hello {
		h.MachineUID, err = in.LookupMachineUID(ctx, j.claim.MachineUID)
	}
	now := j.f.c.Now()
	h = h.live(now) // other Lookups may return a record that has ended
	if err == nil {
		j.claim.Over = ""
		claim := j.claim
		if claim.ProviderID == "" && h.Name != nil && h.Name.Machine == claim.Machine {
			claim.ProviderID = h.Name.ProviderID // perhaps another authorizer knows it: reserve compares
		}
		if err = h.Admit(&claim, now); err != nil && !stale && h.Name != nil && h.Name.State == StateBound {
			if err = j.admitAfter(ctx, h, err); err == nil {
				h.Name = nil
			}
		}
	}
	if err != nil {
		return err
	}
	j.seen, j.newcomer = h.Name, h.Name == nil || h.Name.State != StateBound
	if !j.newcomer {
		return j.checkRejoin(h.Name)
	}
	return j.checkNewcomer(ctx, h.Name == nil && ask, h.Name != nil)
}

// admitAfter admits a claim that the bound record of its name refuses, if that record is over: the last
// certificate of its machine has ended and its Node is gone. A document can be read by any process on a
// machine: such a process could keep the node from renewing, delete it and become the node. So with
// documents only an operator's release ends a record.
func (j *joining) admitAfter(ctx context.Context, h Held, refused error) error {
	e, ok := errors.AsType[*attest.Error](refused)
	if !ok || errors.Is(refused, refusal.ErrRetry) {
		return refused
	}
	r, now := h.Name, j.f.c.Now()
	way := "if the former machine is gone, an operator releases node " + r.NodeName
	gone := j.r.Road != attest.RoadDocument && !r.LastEnd.IsZero()
	if gone {
		way += ", or it is free after " + r.LastEnd.Format(time.RFC3339) + " once its Node is deleted"
	}
	if gone = gone && r.ended(now); gone {
		exists, err := j.f.c.NodeExists(ctx, r.NodeName)
		if err != nil {
			return err
		}
		gone = !exists
	}
	if !gone {
		return &attest.Error{Check: e.Check, Got: e.Got, Want: e.Want, Err: errors.New(way)}
	}
	j.claim.Over = r.Version
	return h.Admit(&j.claim, now)
}

// checkRejoin refuses a further key of a bound machine with only a bootstrap token and a document:
// another process on that machine may have both.
func (j *joining) checkRejoin(held *Record) error {
	checked := j.r.Checked()
	if j.r.Road != attest.RoadDocument || j.r.Stage != attest.StageAnswer || checked == nil || checkedOf(j.r).Requester().Class == csr.RequesterNode ||
		len(held.Issued) == 0 {
		return nil
	}
	key := sha256.Sum256(checked.PKCS10().CSR.RawSubjectPublicKeyInfo) // canonical: ParsePKCS10 refuses others
	if slices.ContainsFunc(held.Issued, func(i csr.IssuedRecord) bool { return i.SPKIHash == key }) {
		return nil
	}
	return checkRegistryRequester.Refuse("another key, asked for by "+checkedOf(j.r).Requester().Class.String(),
		"a request of node "+held.NodeName+" itself or with its key, or one after an operator has released the node")
}

// reserve reserves the claimed node name for the machine, and records the granted provider ID. It does
// nothing if the record that was read has this very claim, reserved or bound.
func (j *joining) reserve(ctx context.Context) (err error) {
	if attested := j.r.Attested(); attested != nil { // nil for a result that no policy has checked
		j.claim.ProviderID = attested.Grant().ProviderID
	}
	if j.seen != nil && j.seen.Claim == j.claim {
		return nil
	}
	if j.seen, err = j.f.c.Registry.Reserve(ctx, j.claim, j.f.c.Now().Add(reservation)); err != nil {
		return err
	}
	j.claim.Over = ""
	switch {
	case j.seen.State == StateBound: // perhaps another replica was quicker
		return j.checkRejoin(j.seen)
	case !j.newcomer: // it was bound when it was looked up, so NodeExists was not called
		return j.checkNewcomer(ctx, true, false)
	}
	return nil
}

// bind records that the machine is the node, with the latest end of its certificates. A record that has
// changed since it was read is reserved again.
func (j *joining) bind(ctx context.Context, issued *csr.IssuedRecord) error {
	if j.r.Purpose != csr.PurposeClient { // it does not authenticate the node
		issued = nil
	}
	seen := j.seen
	if err := j.reserve(ctx); err != nil {
		return err
	}
	if issued != nil {
		issued.ProviderID = j.claim.ProviderID
	}
	var lastEnd time.Time
	if j.r.Purpose != csr.PurposeRecovery && j.notAfter.After(j.seen.LastEnd) {
		// For this extra hour the same answer can be verified again without a write.
		lastEnd = j.notAfter.Add(message.MaxAnswerAge)
	}
	_, err := j.f.c.Registry.Bind(ctx, j.seen, lastEnd, issued)
	if j.seen != seen || !errors.Is(err, CheckRegistryConflict) {
		return err
	}
	if err := j.look(ctx, j.f.c.Registry, true, false); err != nil {
		return err
	}
	j.seen = nil // a reservation whose maker died is completed
	return j.bind(ctx, issued)
}

// keyResidence returns the location of the request's key, for csr.IssuedRecord.
func keyResidence(r *attest.Result) string {
	switch {
	case r.TPMResident:
		return "TPM"
	case r.ResidenceStanding != "":
		return "Software"
	}
	return ""
}

// checkNewcomer refuses a machine without a record unless it requests a client certificate with a
// bootstrap token and, if ask is set, a name that has a Node. (For a reserved name, NodeExists was called
// before it was reserved.)
//
// Two other machines are admitted. If an operator has reserved the name for the machine, the node may
// request with its certificate, although that is in no record: so a node that joined without evidence
// gets its record. And a machine that the inventory names has only lost its record: neither requester
// nor Node matter.
//
// With a document, a bootstrap token is never enough if there is a Node: another process on the machine
// may have both, and the node itself renews with its certificate.
func (j *joining) checkNewcomer(ctx context.Context, ask, reserved bool) error {
	f, r := j.f, j.r
	class, named := checkedOf(r).Requester().Class, inventoryOf(r).Identity == string(r.Machine)
	if r.Purpose != csr.PurposeClient || class != csr.RequesterBootstrap && !named && !(reserved && class == csr.RequesterNode) {
		return checkRegistryRequester.Refuse(r.Purpose.String()+" certificate asked for by "+class.String(),
			"a client certificate asked for with a bootstrap token, or a machine that the inventory names, as node "+r.NodeName+" has no record")
	}
	if r.Road == attest.RoadEK && j.claim.MachineUID == "" && !f.c.InsecureAllowNoMachineUID {
		return &attest.Error{Check: checkRegistryInventory, Got: "a Machine without a UID for node " + r.NodeName,
			Want: "one with a UID, as one TPM can have two EKs, or InsecureAllowNoMachineUID", Err: refusal.ErrRetry}
	}
	if !ask || named && (r.Road != attest.RoadDocument || class != csr.RequesterBootstrap) {
		return nil
	}
	exists, err := f.c.NodeExists(ctx, r.NodeName)
	if err != nil {
		return err
	}
	if exists {
		return checkRegistryNode.Refuse("node "+r.NodeName+", which exists", "one with a record, or whose machine the inventory names")
	}
	return nil
}
