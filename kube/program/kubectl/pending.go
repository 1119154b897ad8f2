package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/refusal"
)

// waiting is a machine that was refused because no record admits it, with its newest request.
type waiting struct {
	candidate
	request, requester string
	created            time.Time
}

// pending lists the machines that were refused because no record admits them. A TPM's machine is known
// from its hello, a document's from its answer.
func (p *plugin) pending(ctx context.Context, _ string) error {
	found := newest{}
	if err := p.eachRequest(ctx, func(r *csr.Request) { p.waits(found, r) }); err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tNODE\tMACHINE\tREQUESTER\tAGE\tRECORDS")
	for _, one := range found.sorted() {
		state, err := p.state(ctx, &one.candidate)
		if err != nil {
			return err
		}
		age := p.now().Sub(one.created).Round(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", refusal.Text(one.request), refusal.Text(one.nodeName), refusal.Text(string(one.machine)), refusal.Text(one.requester), age, state)
	}
	return w.Flush()
}

// newest is the newest request of each candidate.
type newest map[candidate]waiting

// waits takes a request if its machine was refused and may be admitted.
func (p *plugin) waits(found newest, r *csr.Request) {
	if !refused(r) {
		return
	}
	c, err := p.candidateOf(r)
	if err != nil && !errors.Is(err, errEvidence) {
		return
	}
	if old, ok := found[*c]; !ok || old.created.Before(r.Metadata.CreationTimestamp) {
		found[*c] = waiting{*c, r.Metadata.Name, r.User.Username, r.Metadata.CreationTimestamp}
	}
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
