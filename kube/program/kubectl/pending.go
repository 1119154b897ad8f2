package kubectl

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// pendingItem is a machine in the output of pending.
type pendingItem struct {
	Request string `json:"request"`
	Node    string `json:"node"`
	// Machine is empty if only the controller can tell it.
	Machine string `json:"machine,omitempty"`
	// Evidence is the kind of evidence, or the block of evidence that this program does not read.
	Evidence  string    `json:"evidence"`
	Requester string    `json:"requester"`
	Created   time.Time `json:"created"`
	// Records is the state of the records of node and machine: "none", "approved", or the check that
	// refuses the machine.
	Records string `json:"records"`
}

// pending lists the machines that were refused because no record admits them. A TPM's machine is known
// from its hello, a document's from its answer.
func (p *plugin) pending(ctx context.Context, _ string) error {
	found, err := p.waitingMachines(ctx)
	if err != nil {
		return err
	}
	reads := *p
	if len(found) >= snapshotFrom {
		if reads.client, err = newSnapshot(ctx, p.client, found); err != nil {
			return err
		}
	}
	var items []pendingItem
	for _, one := range found {
		state, err := reads.state(ctx, &one.candidate)
		if err != nil {
			return err
		}
		items = append(items, pendingItem{one.request, one.nodeName, string(one.machine), cmp.Or(one.provider, one.unread), one.requester, one.created.UTC(), state})
	}
	l := list[pendingItem]{"Pending", func(i pendingItem) string { return i.Request }, []column[pendingItem]{
		{"REQUEST", func(i pendingItem) string { return i.Request }, false},
		{"NODE", func(i pendingItem) string { return i.Node }, false},
		{"MACHINE", func(i pendingItem) string { return refusal.Text(i.Machine) }, false},
		{"EVIDENCE", func(i pendingItem) string { return refusal.Text(i.Evidence) }, true},
		{"REQUESTER", func(i pendingItem) string { return refusal.Text(i.Requester) }, false},
		{"AGE", func(i pendingItem) string { return p.age(&i.Created) }, false},
		{"FILED", func(i pendingItem) string { return second(i.Created) }, true},
		{"RECORDS", func(i pendingItem) string { return i.Records }, false},
	}}
	return l.print(p, items)
}

// waitingMachines returns the machines that wait, by node name.
func (p *plugin) waitingMachines(ctx context.Context) ([]waiting, error) {
	found := newest{}
	if err := p.eachRequest(ctx, func(r *csr.Request) { p.waits(found, r) }); err != nil {
		return nil, err
	}
	return found.sorted(), nil
}

// newest is the newest request of each candidate.
type newest map[candidate]waiting

// waits takes a request if its machine was refused and may be admitted.
func (p *plugin) waits(found newest, r *csr.Request) {
	if !refused(r) {
		return
	}
	c, err := p.waitingOf(r)
	if err != nil && !errors.Is(err, errEvidence) {
		return
	}
	old, ok := found[c.candidate]
	self := c.self || old.self
	if ok && !old.created.Before(c.created) {
		c = &old
	}
	c.self = self
	found[c.candidate] = *c
}

// sorted returns the requests by node name.
func (found newest) sorted() []waiting {
	return slices.SortedFunc(maps.Values(found), func(a, b waiting) int {
		return cmp.Or(cmp.Compare(a.nodeName, b.nodeName), cmp.Compare(a.machine, b.machine), cmp.Compare(a.unread, b.unread))
	})
}

// state describes the records that a candidate concerns.
func (p *plugin) state(ctx context.Context, c *candidate) (string, error) {
	if c.unread != "" {
		return "evidence of " + refusal.Text(c.unread) + " is not read by this program", nil
	}
	recorded, r, err := p.record(ctx, c.nodeName)
	if err != nil {
		return "", err
	}
	if recorded != nil && r.Scope().String() != c.scope.String() {
		return string(membership.CheckRegistryScope) + ": recorded by " + r.Scope().String() + "; to admit it by " + c.scope.String() +
			", an operator releases the node first: kubectl nodeattest release " + refusal.Text(c.nodeName), nil
	}
	claim := membership.Claim{NodeName: c.nodeName, Machine: c.machine}
	held, err := p.held(ctx, claim)
	if err != nil {
		return "", err
	}
	if held.Name != nil {
		claim.MachineUID, claim.ProviderID = held.Name.MachineUID, held.Name.ProviderID
	}
	if claim.Machine == "" && held.Name != nil { // only the controller can tell the machine
		return "recorded for " + refusal.Text(string(held.Name.Machine)), nil
	}
	if claim.Machine != "" {
		err = held.Admit(&claim, p.now())
	}
	switch e, ok := errors.AsType[*attest.Error](err); {
	case ok:
		return string(e.Check), nil
	case held.Name != nil:
		return "approved", nil
	}
	return "none", nil
}
