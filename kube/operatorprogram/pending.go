package operatorprogram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	request *csr.Request
}

// pending lists the machines that were refused because no record admits them. For a TPM that
// is a hello; the machine of a document is not known before the answer.
func (p *plugin) pending(ctx context.Context, _ string) error {
	requests, err := p.listRequests(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tNODE\tMACHINE\tREQUESTER\tAGE\tRECORDS")
	for _, one := range p.waiting(requests) {
		state, err := p.state(ctx, &one.candidate)
		if err != nil {
			return err
		}
		r := one.request
		age := p.now().Sub(r.Metadata.CreationTimestamp).Round(time.Second)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", refusal.Text(r.Metadata.Name), refusal.Text(one.nodeName), refusal.Text(string(one.machine)), refusal.Text(r.User.Username), age, state)
	}
	return w.Flush()
}

// waiting finds the machines among requests, in the order of the nodes that they want to be.
func (p *plugin) waiting(requests []*csr.Request) []waiting {
	newest := map[candidate]*csr.Request{}
	for _, request := range requests {
		if !refused(request) {
			continue
		}
		c, err := p.candidateOf(request)
		if err != nil && !errors.Is(err, errEvidence) {
			continue
		}
		if old := newest[*c]; old == nil || old.Metadata.CreationTimestamp.Before(request.Metadata.CreationTimestamp) {
			newest[*c] = request
		}
	}
	all := make([]waiting, 0, len(newest))
	for c, request := range newest {
		all = append(all, waiting{c, request})
	}
	slices.SortFunc(all, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(a.nodeName, b.nodeName), cmp.Compare(a.machine, b.machine), cmp.Compare(a.unread, b.unread))
	})
	return all
}

// state says what records there are about a candidate.
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
	held, err := p.held(ctx, membership.Claim{NodeName: c.nodeName, Machine: c.machine})
	if err != nil {
		return "", err
	}
	claim := membership.Claim{NodeName: c.nodeName, Machine: c.machine}
	if held.Name != nil {
		claim.MachineUID, claim.ProviderID = held.Name.MachineUID, held.Name.ProviderID
	}
	err = held.Admit(&claim, p.now())
	switch e, ok := errors.AsType[*attest.Error](err); {
	case ok:
		return string(e.Check), nil
	case held.Name != nil:
		return "approved", nil
	}
	return "none", nil
}
