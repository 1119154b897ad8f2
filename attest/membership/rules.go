package membership

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/der"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// Held holds the stored records that matter for one call: by its node name, its machine and its Machine
// UID. A field is nil without a record, and if the call has no machine or UID. Records that have ended
// may be included, and a machine's resting record: the rules ignore them.
//
// Its methods are all the rules of a [Registry]. They are pure functions that return the change to
// make. The clock is an argument.
type Held struct {
	// Name is the record of the node name, Machine of the machine, MachineUID of the Machine UID.
	Name, Machine, MachineUID *Record
}

// Change is a rule's decision: Put, Drop or, if neither is set, no change.
type Change struct {
	// Put: store Record in place of its name's, with a new Version. Its own is the old one, or "".
	Put bool
	// Drop: remove Record, the name's.
	Drop bool
	// Record is the result of the call. It is nil if Release has nothing to do.
	Record *Record
}

// live leaves out records that have ended, and a machine's resting record.
func (h Held) live(now time.Time) Held {
	for _, r := range []**Record{&h.Name, &h.Machine, &h.MachineUID} {
		if !(*r).Live(now) {
			*r = nil
		}
	}
	if !h.Machine.HoldsMachine() {
		h.Machine = nil
	}
	return h
}

// without leaves out the name's record if it has this version and its last certificate has ended.
func (h Held) without(version string, now time.Time) Held {
	if version != "" && h.Name != nil && h.Name.Version == version && h.Name.ended(now) {
		h.Name = nil
	}
	return h
}

// Reserve claims a node name for a machine until the deadline, which must be in the future and
// at most an hour away. If this very claim has already reserved the pair, the deadline
// becomes the new one. If the pair is already bound, nothing changes, except that an unknown
// provider ID is filled in. h.Machine and h.MachineUID belong to the claim. A bound record that is over
// ([Claim.Over]) is ignored.
//
// It refuses, in this order: a name that rests ([CheckRegistryResting]), is reserved for
// another machine (registry-reserved, to be tried again) or bound to another
// (registry-name); a record of the pair with another Machine UID
// (registry-machine-uid) or provider ID (registry-provider-id, to be tried again if the claim has
// none); a machine that is
// reserved (registry-reserved) or bound (registry-machine) under another name;
// a Machine UID that is reserved (registry-reserved), bound or resting
// (registry-machine-uid) under another name.
func (h Held) Reserve(c Claim, deadline, now time.Time) (Change, error) {
	deadline = deadline.Truncate(time.Second).UTC()
	if length := deadline.Sub(now); length <= 0 || length > maxReservation {
		return Change{}, checkRegistryClaim.Refuse("a deadline of "+deadline.Format(time.RFC3339), "one within the next "+maxReservation.String())
	}
	if err := h.Admit(&c, now); err != nil {
		return Change{}, err
	}
	old := h.live(now).without(c.Over, now).Name
	c.Over = ""
	switch {
	case old == nil || old.State == StateReserved:
		return Change{Put: true, Record: &Record{Claim: c, State: StateReserved, Deadline: deadline}}, nil
	case old.ProviderID == "" && c.ProviderID != "":
		r := *old
		r.ProviderID = c.ProviderID
		return Change{Put: true, Record: &r}, nil
	}
	return Change{Record: old}, nil
}

// Admit returns the error that Reserve would return, without a deadline, for callers that do not write.
func (h Held) Admit(c *Claim, now time.Time) error {
	if err := c.Check(); err != nil {
		return err
	}
	h = h.live(now).without(c.Over, now)
	return cmp.Or(admitName(h.Name, c), h.admitElsewhere(c))
}

// admitName checks a claim against the record of its name, which may be nil.
func admitName(r *Record, c *Claim) error {
	switch {
	case r == nil:
		return nil
	case r.State == StateResting:
		return CheckRegistryResting.Refuse("a claim to node "+r.NodeName,
			"one after "+r.LastEnd.Format(time.RFC3339)+", when its last certificate has expired")
	case r.Machine != c.Machine && r.State == StateReserved:
		return reservedElsewhere(r)
	case r.Machine != c.Machine:
		return checkRegistryName.Refuse("machine "+string(c.Machine), "that of node "+r.NodeName+", "+string(r.Machine))
	case r.MachineUID != c.MachineUID:
		return checkRegistryUID.Refuse("Machine UID "+refusal.OrNothing(c.MachineUID), "that of node "+r.NodeName+", "+refusal.OrNothing(r.MachineUID))
	case r.ProviderID != "" && c.ProviderID == "": // the inventory does not know it yet, or not just now
		return &attest.Error{Check: checkRegistryProviderID, Got: "no provider ID", Want: r.ProviderID, Err: refusal.ErrRetry}
	}
	if same, got, want := oid.SameProviderID(c.ProviderID, cmp.Or(r.ProviderID, c.ProviderID)); !same {
		return checkRegistryProviderID.Refuse("provider ID "+got, "that of node "+r.NodeName+", "+want)
	}
	return nil
}

// admitElsewhere refuses a claim whose machine, or whose Machine UID, has a record under another name.
func (h Held) admitElsewhere(c *Claim) error {
	return cmp.Or(elsewhere(h.Machine, c.NodeName, checkRegistryMachine, "machine "+string(c.Machine)),
		elsewhere(h.MachineUID, c.NodeName, checkRegistryUID, "Machine UID "+refusal.OrNothing(c.MachineUID)))
}

// elsewhere refuses a machine or UID whose record r has another name. r may be nil.
func elsewhere(r *Record, nodeName string, check attest.Check, what string) error {
	switch {
	case r == nil || r.NodeName == nodeName:
		return nil
	case r.State == StateReserved:
		return reservedElsewhere(r)
	}
	return check.Refuse("node "+nodeName, "that of "+what+", "+r.NodeName+", unless an operator releases that one")
}

func reservedElsewhere(r *Record) error {
	return &attest.Error{Check: checkRegistryReserved,
		Got:  "a claim while node " + r.NodeName + " is reserved for machine " + string(r.Machine),
		Want: "one after " + r.Deadline.Format(time.RFC3339), Err: refusal.ErrRetry}
}

func conflict(got, want string) error {
	return &attest.Error{Check: CheckRegistryConflict, Got: got, Want: want, Err: refusal.ErrRetry}
}

var errNoRecord = errors.New("membership: no record was given")

// change returns the change of a record that the caller has read. The record must still have the same
// version, and be bound or in state or.
func (h Held) change(seen *Record, or State, now time.Time, how func(r *Record) error) (Change, error) {
	if seen == nil {
		return Change{}, errNoRecord
	}
	old := h.live(now).Name
	switch {
	case old == nil || old.NodeName != seen.NodeName || old.Version != seen.Version:
		return Change{}, conflict("a record of node "+seen.NodeName+" that has changed", "the one that was read")
	case old.State != StateBound && old.State != or:
		return Change{}, conflict("a "+string(old.State)+" record of node "+old.NodeName, "a bound one")
	}
	r := *old
	if err := how(&r); err != nil {
		return Change{}, err
	}
	if reflect.DeepEqual(&r, old) {
		return Change{Record: old}, nil
	}
	return Change{Put: true, Record: &r}, nil
}

// Bind makes the reservation that the caller has read final, or finds the record bound, and in the same
// change records a certificate for it.
//
// lastEnd is the latest end of a certificate, rounded up to whole seconds; the zero time, and an end
// before the recorded one, change nothing. issued, which may be nil, is the record of the certificate
// or, before it is signed, of the request (csr.Attested.Record). It must have the record's node and machine,
// and end by the last end (registry-claim). The record of a request is kept once, until the record of its
// certificate replaces it. The record of a certificate is kept once too; a missing Node UID is filled in.
// Ended certificates are removed. If there are more than MaxIssued, one is removed that the node has
// replaced or, without such a one, with which it has not filed a request, from the largest group of
// these. So retries of a signer or node, and requests with bootstrap tokens, never remove the certificate
// in use.
//
// After the deadline of the reservation, or if the record has changed, Bind is refused with
// [CheckRegistryConflict].
func (h Held) Bind(seen *Record, lastEnd time.Time, issued *csr.IssuedRecord, now time.Time) (Change, error) {
	return h.change(seen, StateReserved, now, func(r *Record) error {
		r.State, r.Deadline = StateBound, time.Time{}
		if !lastEnd.IsZero() {
			end := wholeSecond(lastEnd.Add(time.Second - 1))
			if s := end.Unix(); s < 0 || s > der.MaxUnixSeconds {
				return checkRegistryClaim.Refuse("a last end outside the years 1970 to 9999", "one that a certificate can state")
			}
			if end.After(r.LastEnd) {
				r.LastEnd = end
			}
		}
		if issued == nil {
			return nil
		}
		return r.issue(*issued, now)
	})
}

// MaxIssued is how many records of certificates the record of a node can have.
const MaxIssued = 16

func wholeSecond(t time.Time) time.Time { return t.Truncate(time.Second).UTC() }

// issue adds a certificate or request to the record.
func (r *Record) issue(c csr.IssuedRecord, now time.Time) error {
	c.NotBefore, c.NotAfter = wholeSecond(c.NotBefore), wholeSecond(c.NotAfter)
	switch {
	case c.NodeName != r.NodeName || c.Machine != string(r.Machine) || c.MachineUID != r.MachineUID:
		return checkRegistryClaim.Refuse("a certificate of machine "+c.Machine+" "+c.MachineUID+" for node "+c.NodeName, "one of "+string(r.Machine)+" "+r.MachineUID+" for "+r.NodeName)
	case c.NotAfter.After(r.LastEnd) || c.NotAfter.IsZero():
		return checkRegistryClaim.Refuse("a certificate that ends "+c.NotAfter.Format(time.RFC3339), "one that ends by "+r.LastEnd.Format(time.RFC3339))
	}
	r.Issued = slices.Clone(r.Issued)
	sameRequest := func(o csr.IssuedRecord) bool { return requestOf(&o) == requestOf(&c) }
	if c.CredentialID == "" && slices.ContainsFunc(r.Issued, sameRequest) {
		return nil
	}
	known := func(o csr.IssuedRecord) bool { return c.CredentialID != "" && o.CredentialID == c.CredentialID }
	if i := slices.IndexFunc(r.Issued, known); i >= 0 {
		r.Issued[i].NodeUID = cmp.Or(r.Issued[i].NodeUID, c.NodeUID)
		return nil
	}
	r.Issued = append(slices.DeleteFunc(r.Issued, func(o csr.IssuedRecord) bool {
		return now.After(o.NotAfter) || o.CredentialID == "" && sameRequest(o)
	}), c)
	slices.SortStableFunc(r.Issued, func(a, b csr.IssuedRecord) int { return a.NotAfter.Compare(b.NotAfter) })
	if len(r.Issued) > MaxIssued {
		n := r.excess(&c)
		r.Issued = slices.Delete(r.Issued, n, n+1)
	}
	return nil
}

// issuedRequest is the request that a certificate is for: its UID and key.
type issuedRequest struct {
	uid string
	key [32]byte
}

func requestOf(c *csr.IssuedRecord) issuedRequest { return issuedRequest{c.RequestUID, c.SPKIHash} }

// excess returns the index of the certificate to remove, never the newest. It is one that the node has
// replaced: it has filed a request with the next one. Other certificates with which the node has filed a
// request stay ([csr.IssuedRecord].FiledWith). Of the rest, it is one of the request and key with the
// most certificates or, if none has several, one requested with the credential that requested the most;
// of these, the middle one by time of issue. For a node that loses its new certificates uses the first,
// and once it keeps one, the last.
func (r *Record) excess(newest *csr.IssuedRecord) int {
	filed, replaced := map[string]bool{}, map[string]bool{}
	for i := range r.Issued {
		filed[r.Issued[i].FiledWith] = true
	}
	delete(filed, "")
	for i := range r.Issued {
		if c := &r.Issued[i]; filed[c.CredentialID] {
			replaced[c.FiledWith] = true
		}
	}
	delete(replaced, "")
	var rest []*csr.IssuedRecord
	for i := range r.Issued {
		switch c := &r.Issued[i]; {
		case c.CredentialID == newest.CredentialID && requestOf(c) == requestOf(newest):
		case replaced[c.CredentialID]:
			return i
		case !filed[c.CredentialID]:
			rest = append(rest, c)
		}
	}
	slices.SortStableFunc(rest, func(a, b *csr.IssuedRecord) int {
		if a.NotBefore.IsZero() != b.NotBefore.IsZero() { // a request, which has none yet, is newer
			return b.NotBefore.Compare(a.NotBefore)
		}
		return a.NotBefore.Compare(b.NotBefore)
	})
	most := largest(rest, requestOf)
	if len(most) < 2 {
		most = largest(rest, func(c *csr.IssuedRecord) string { return c.FiledWith })
	}
	return slices.IndexFunc(r.Issued, func(c csr.IssuedRecord) bool { return len(most) == 0 || c == *most[len(most)/2] })
}

// largest returns the records of the key with the most records; of several such keys, of the last
// record's.
func largest[K comparable](all []*csr.IssuedRecord, key func(*csr.IssuedRecord) K) (most []*csr.IssuedRecord) {
	of := map[K][]*csr.IssuedRecord{}
	for _, c := range all {
		of[key(c)] = append(of[key(c)], c)
	}
	for _, c := range all {
		if these := of[key(c)]; len(these) >= len(most) {
			most = these
		}
	}
	return most
}

// Rebind gives the bound record that the caller has read another machine, whose record is h.Machine, and
// removes certificates and provider ID of the former one: the next Reserve fills in the new one's. It
// refuses a machine with another name as Reserve does.
func (h Held) Rebind(seen *Record, machine attest.Identity, now time.Time) (Change, error) {
	if !machine.Valid() {
		return Change{}, checkRegistryClaim.Refuse(string(machine), "a machine identity")
	}
	return h.change(seen, StateBound, now, func(r *Record) error {
		if r.Machine != machine {
			r.Machine, r.ProviderID, r.Issued = machine, "", nil
		}
		return h.live(now).admitElsewhere(&r.Claim)
	})
}

// Adopt gives the bound record that the caller has read the UID of another Machine object, whose
// record is h.MachineUID. Machine and provider ID stay the same. It refuses the UID of a
// Machine that has another name, as Reserve does, and an empty one.
//
// A resting record becomes bound again, with its last end: its machine, whose record is h.Machine, is back
// as another Machine object. It refuses a machine that has another name by now, as Reserve does, and the
// UID of the Machine object that is gone.
func (h Held) Adopt(seen *Record, machineUID string, now time.Time) (Change, error) {
	return h.change(seen, StateResting, now, func(r *Record) error {
		switch {
		case machineUID == "":
			return checkRegistryClaim.Refuse("no Machine UID", "one")
		case r.Machine != seen.Machine:
			return conflict("machine "+string(r.Machine)+" of node "+r.NodeName, "that of the record that was read, "+string(seen.Machine))
		case r.State == StateResting && r.MachineUID == machineUID:
			return checkRegistryUID.Refuse("Machine UID "+machineUID+", which was released", "that of another Machine object")
		}
		r.State = StateBound
		r.MachineUID, r.Issued = machineUID, slices.Clone(r.Issued)
		for i := range r.Issued {
			r.Issued[i].MachineUID = machineUID
		}
		return cmp.Or(r.Claim.Check(), h.live(now).admitElsewhere(&r.Claim))
	})
}

// Release frees the name of an inventory Machine that is gone. A reserved record with its UID is removed;
// a bound one rests until its LastEnd has passed. A record with another UID is not changed.
func (h Held) Release(machineUID string, now time.Time) Change {
	old := h.live(now).Name
	if old == nil || old.MachineUID != machineUID || old.State == StateResting {
		return Change{}
	}
	r := *old
	r.State, r.Deadline, r.Issued = StateResting, time.Time{}, nil
	if old.State == StateBound && r.Live(now) {
		return Change{Put: true, Record: &r}
	}
	return Change{Drop: true, Record: old}
}
