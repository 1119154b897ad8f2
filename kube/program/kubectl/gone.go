package kubectl

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// A held is a node that the controller's sweep has left to an operator.
type held struct {
	record *membership.Record
	of     string // the Machine of Cluster API
	since  time.Time
}

// releaseGone releases the nodes whose Machines the controller does not find. It shows them and asks,
// unless --yes is given.
func (p *plugin) releaseGone(ctx context.Context, _ string) error {
	var objects v1alpha1.AttestedNodeList
	if err := p.client.List(ctx, &objects); err != nil {
		return err
	}
	var all []*held
	for i := range objects.Items {
		h, err := heldOf(&objects.Items[i])
		if err != nil {
			return err
		}
		if h != nil {
			all = append(all, h)
		}
	}
	if len(all) == 0 {
		fmt.Fprintln(p.out, "the controller holds no node whose Machine is gone")
		return nil
	}
	l := list[*held]{"", nil, []column[*held]{
		{"NODE", func(h *held) string { return h.record.NodeName }, false},
		{"MACHINE", func(h *held) string { return refusal.Text(string(h.record.Machine)) }, false},
		{"CLUSTER API MACHINE", func(h *held) string { return refusal.Text(h.of) }, false},
		{"MISSING FOR", func(h *held) string { return p.age(&h.since) }, false},
		{"LAST CERTIFICATE", func(h *held) string { return h.record.LastEnd.UTC().Format(time.RFC3339) }, false},
	}}
	if err := l.print(p, all); err != nil {
		return err
	}
	question := fmt.Sprintf("Are these machines gone, %d in all? Then their nodes get no certificate any more, and their names rest until the last one has ended. [y/N] ", len(all))
	if err := p.confirmAll(question, "add --yes to release all of these nodes"); err != nil {
		return err
	}
	done, failed := 0, 0
	for _, h := range all {
		if err := p.releaseHeld(ctx, h); err != nil {
			failed++
			report(p.err, fmt.Errorf("node %s is not released: %w", refusal.Text(h.record.NodeName), err))
			continue
		}
		done++
	}
	fmt.Fprintf(p.out, "%d released, %d not\n", done, failed)
	if failed != 0 {
		return exitStatus(1)
	}
	return nil
}

// heldOf returns the node of a record that is held; nil for another one.
func heldOf(object *v1alpha1.AttestedNode) (*held, error) {
	notes := object.GetAnnotations()
	since, err := time.Parse(time.RFC3339, notes[clusterapi.AnnotationGone])
	if notes[clusterapi.AnnotationGone] == "" {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("AttestedNode %s has the annotation %s: %w", object.Name, clusterapi.AnnotationGone, err)
	}
	record, err := registry.AttestedRecord(object)
	if err != nil || record == nil || record.State != membership.StateBound || record.MachineUID == "" || notes[clusterapi.AnnotationMachineUID] != record.MachineUID {
		return nil, err
	}
	return &held{record, notes[clusterapi.AnnotationMachine], since}, nil
}

// releaseHeld releases a node that was shown, if it is still held, with the same Machine and machine.
func (p *plugin) releaseHeld(ctx context.Context, shown *held) error {
	var object v1alpha1.AttestedNode
	if err := p.client.Get(ctx, client.ObjectKey{Name: shown.record.NodeName}, &object); err != nil {
		return err
	}
	now, err := heldOf(&object)
	switch {
	case err != nil:
		return err
	case now == nil:
		return errChanged(shown.record.NodeName)
	}
	scope, err := membership.ParseScope(object.Spec.Scope)
	if err != nil {
		return err
	}
	one := *p
	one.client = seen{p.client, shown.record}
	r, err := one.registry(scope)
	if err != nil {
		return err
	}
	released, err := r.Release(ctx, shown.record.NodeName, shown.record.MachineUID)
	if err == nil && !released {
		err = errChanged(shown.record.NodeName)
	}
	return err
}
