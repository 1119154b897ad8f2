package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/settings"
	"github.com/nodeattest/nodeattest/refusal"
)

// An existing is a Node that exists, with the machine that waits to be recorded as it.
type existing struct {
	node string
	uid  types.UID
	waiting
	claim  membership.Claim
	listed csr.Machine // the inventory's entry
	err    error       // why it cannot be approved
}

// approveExisting records waiting machines as Nodes that exist and have no record: of all such Nodes, or of
// those named. It shows the machines and asks, unless --yes is given. With --yes, a machine that the inventory
// does not identify is approved only for a Node that is named. The exit status is 1 if a Node is refused.
func (p *plugin) approveExisting(ctx context.Context, names string) error {
	shown, err := p.existing(ctx, strings.Fields(names))
	if err != nil {
		return err
	}
	approved, refused := 0, 0
	var left []*existing
	var again []string
	for _, e := range shown {
		if e.err != nil {
			refused++
			p.refuseExisting(e)
			continue
		}
		left, again = append(left, e), append(again, e.node)
	}
	if len(left) != 0 {
		if err := p.confirmExisting(left, names != ""); err != nil {
			return err
		}
		now, err := p.existing(ctx, again) // while the question was open
		if err != nil {
			return err
		}
		for n, e := range left {
			if e.err = p.recordExisting(ctx, e, now[n]); e.err != nil {
				refused++
				p.refuseExisting(e)
				continue
			}
			approved++
			fmt.Fprintf(p.out, "node %s is machine %s\n", e.node, refusal.Text(string(e.machine)))
		}
	}
	fmt.Fprintf(p.out, "%d approved, %d refused\n", approved, refused)
	if refused != 0 {
		return exitStatus(1)
	}
	return nil
}

func (p *plugin) refuseExisting(e *existing) {
	report(p.err, fmt.Errorf("node %s is not approved: %w", refusal.Text(e.node), e.err))
}

// confirmExisting shows the machines, and has the operator confirm them at a terminal.
func (p *plugin) confirmExisting(all []*existing, named bool) error {
	l := list[*existing]{"", nil, []column[*existing]{
		{"NODE", func(e *existing) string { return e.node }, false},
		{"MACHINE", func(e *existing) string { return refusal.Text(string(e.machine)) }, false},
		{"ISSUER", func(e *existing) string { return refusal.Text(e.issuer) }, false},
		{"REQUESTER", func(e *existing) string { return refusal.Text(e.requester) }, false},
		{"AGE", func(e *existing) string { return p.age(&e.created) }, false},
		{"INVENTORY", (*existing).entry, false},
	}}
	if err := l.print(p, all); err != nil {
		return err
	}
	if p.warnUnlisted(all) && p.yes && !named {
		return errors.New("nothing was done: --yes takes machines that the inventory does not identify only for Nodes that are named: name them, or answer at a terminal")
	}
	return p.confirmAll(fmt.Sprintf("Record these machines as their Nodes, %d in all? [y/N] ", len(all)), "add --yes to approve all of these machines")
}

// confirmAll has the operator confirm a list at a terminal, unless --yes is given.
func (p *plugin) confirmAll(question, without string) error {
	switch {
	case p.yes:
		return nil
	case !p.terminal:
		return errors.New("nothing was done: standard input is not a terminal, so no operator can be asked; " + without)
	}
	yes, err := p.ask(question)
	if err == nil && !yes {
		err = errors.New("nothing was done: the answer was not y")
	}
	return err
}

// warnUnlisted warns about machines that the inventory does not identify. That the node itself has filed their
// requests then says little: where requests without evidence are approved, the holder of a bootstrap token has a
// certificate of any node. It reports whether there are any.
func (p *plugin) warnUnlisted(all []*existing) bool {
	unlisted := 0
	for _, e := range all {
		if e.listed.Identity == "" {
			unlisted++
		}
	}
	if unlisted != 0 {
		fmt.Fprintf(p.err, "warning: the inventory has no identity for %d of these Nodes: if the cluster approves requests without evidence, "+
			"the holder of a bootstrap token may have filed the request as the node; "+
			"compare each MACHINE with the output of kubelet-authenticator identity on the node\n", unlisted)
	}
	return unlisted != 0
}

// entry describes the inventory's entry.
func (e *existing) entry() string {
	says := "no identity"
	if e.listed.Identity != "" {
		says = "this identity"
	}
	says += ", UID " + refusal.Text(e.listed.UID)
	if id := e.listed.KnownProviderID(); id != "" {
		says += ", provider ID " + refusal.Text(id)
	}
	return says
}

// recordExisting records the machine of one Node, unless the look after the question has found another state. A
// record that was made meanwhile stays: only a name without a record can be reserved.
func (p *plugin) recordExisting(ctx context.Context, shown, now *existing) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case now.err != nil:
		return fmt.Errorf("it has changed since it was shown: %w", now.err)
	case now.uid != shown.uid || now.claim != shown.claim:
		return fmt.Errorf("it has changed since it was shown: Node %s with machine %s is now Node %s with machine %s: run the command again",
			shown.uid, shown.machine, now.uid, now.machine)
	}
	r, err := p.registry(shown.scope)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute) // an interrupt would leave a reservation
	defer cancel()
	record, err := r.Reserve(ctx, shown.claim, p.now().Add(time.Minute))
	if err == nil {
		_, err = r.Bind(ctx, record, time.Time{}, nil)
	}
	return err
}

// existing looks at the machines that wait for Nodes without a record, or for the named ones, and decides about
// each. It returns one item for each Node, by name.
func (p *plugin) existing(ctx context.Context, names []string) ([]*existing, error) {
	l := &look{p: p, waiting: map[string][]waiting{}, claims: map[attest.Identity][]string{}}
	var err error
	if l.nodes, err = p.all(ctx); err != nil {
		return nil, err
	}
	if l.machines, err = p.inventory(ctx); err != nil {
		return nil, err
	}
	all, err := p.waitingMachines(ctx)
	if err != nil {
		return nil, err
	}
	for _, w := range all {
		l.waiting[w.nodeName] = append(l.waiting[w.nodeName], w)
		if claims := l.claims[w.machine]; w.machine != "" && !slices.Contains(claims, w.nodeName) {
			l.claims[w.machine] = append(claims, w.nodeName)
		}
	}
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(l.waiting))
		names = slices.DeleteFunc(names, func(name string) bool {
			n := l.nodes[name]
			return n == nil || !n.Registered || n.Status != statusPlain && n.Status != statusWithoutEvidence
		})
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	items := make([]*existing, len(names))
	for n, name := range names {
		items[n] = &existing{node: name}
		items[n].err = l.decide(ctx, items[n])
	}
	return items, nil
}

// A look is the state of the cluster by which machines are approved.
type look struct {
	p        *plugin
	nodes    map[string]*nodeItem
	machines *settings.Listed
	waiting  map[string][]waiting         // by the name of the node
	claims   map[attest.Identity][]string // the names of nodes that a machine asks for
}

// decide completes an item, or says why its machine cannot be approved.
func (l *look) decide(ctx context.Context, e *existing) error {
	n, all := l.nodes[e.node], l.waiting[e.node]
	switch {
	case n == nil || !n.Registered:
		return errors.New("the cluster has no Node of this name; for a machine that joins, run kubectl nodeattest approve NODE --machine MACHINE")
	case n.Status == statusWithoutEvidence:
		return fmt.Errorf("it is recorded without evidence: run kubectl nodeattest release %s first", e.node)
	case n.Status != statusPlain:
		return fmt.Errorf("it has a record, of machine %s with status %s: see kubectl nodeattest nodes",
			refusal.OrNothing(refusal.Text(n.Machine)), n.Status)
	case len(all) == 0:
		return errors.New("no machine waits for it: the node has not asked yet, or its requests are refused for another reason; " +
			"see kubectl nodeattest pending")
	case len(all) > 1:
		return fmt.Errorf("%d machines ask for it: %s; %s", len(all), describe(all), approveOne(e.node, "MACHINE"))
	}
	e.waiting, e.uid = all[0], n.uid
	provider := cmp.Or(e.provider, e.unread)
	switch claims := l.claims[e.machine]; {
	case e.unread != "":
		return fmt.Errorf("evidence of %s is not read by this program", refusal.Text(e.unread))
	case e.machine == "":
		return fmt.Errorf("its request does not state the machine, which only the controller knows; %s", approveOne(e.node, "MACHINE"))
	case len(claims) > 1:
		return fmt.Errorf("machine %s asks for several nodes: %s; %s", e.machine,
			strings.Join(claims[:min(len(claims), maxShown)], ", "), approveOne(e.node, string(e.machine)))
	}
	e.claim = membership.Claim{NodeName: e.node, Machine: e.machine}
	if err := complete(ctx, &e.claim, l.machines, provider); err != nil {
		return err
	}
	listed, err := l.machines.Machine(ctx, csr.Question{NodeName: e.node})
	if err != nil {
		return err
	}
	e.listed = *listed
	if !e.self && e.listed.Identity == "" {
		return fmt.Errorf("%s has filed the request of machine %s, not the node itself, and the inventory has no identity for the node; %s",
			refusal.Text(e.requester), e.machine, approveOne(e.node, string(e.machine)))
	}
	state, err := l.p.state(ctx, &e.candidate)
	if err == nil && state != "none" {
		err = fmt.Errorf("machine %s: %s", e.machine, state)
	}
	return err
}

// approveOne is the advice to compare a machine, and to approve it by its identity.
func approveOne(node, machine string) string {
	return fmt.Sprintf("compare the machine with your knowledge of the node, "+
		"and run kubectl nodeattest approve %s --machine %s --existing-node", refusal.Text(node), refusal.Text(machine))
}

// describe names machines with their requests.
func describe(all []waiting) string {
	var names []string
	for _, w := range all[:min(len(all), maxShown)] {
		names = append(names, fmt.Sprintf("machine %s (request %s of %s)",
			refusal.OrNothing(refusal.Text(string(w.machine))), w.request, refusal.Text(w.requester)))
	}
	return strings.Join(names, ", ")
}

// isTerminal reports whether a reader is a terminal.
func isTerminal(r io.Reader) bool {
	f, ok := r.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
