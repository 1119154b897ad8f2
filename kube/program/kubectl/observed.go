package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/kube/program/internal/observed"
	"github.com/nodeattest/nodeattest/refusal"
)

// observed lists the requests that an observing controller would have refused, and the Nodes that have
// not attested yet.
func (p *plugin) observed(ctx context.Context, _ string) error {
	var table corev1.ConfigMap
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: observed.ConfigMap}, &table); err != nil {
		return err
	}
	lines := observed.Parse(table.Data)
	left, err := p.unattested(ctx)
	if err != nil {
		return err
	}
	for _, l := range left {
		if !slices.ContainsFunc(lines, func(line observed.Refusal) bool { return line.Node == l.Node }) {
			lines = append(lines, l)
		}
	}
	slices.SortStableFunc(lines, func(a, b observed.Refusal) int { return cmp.Compare(a.Node, b.Node) })
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tREQUEST\tREQUESTER\tAGE\tWOULD BE REFUSED")
	for _, line := range lines {
		age := ""
		if !line.Last.IsZero() {
			age = p.now().Sub(line.Last).Round(time.Second).String()
		}
		why := line.Message
		if line.Reason != "" {
			why = line.Reason + ": " + why
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", refusal.Text(line.Node), refusal.Text(line.Request), refusal.Text(line.Requester), age, refusal.Text(why))
	}
	return w.Flush()
}

// unattested returns the Nodes without a bound record, and the nodes with a record without evidence, with
// the end of their certificates.
func (p *plugin) unattested(ctx context.Context) ([]observed.Refusal, error) {
	var records v1alpha1.AttestedNodeList
	if err := p.client.List(ctx, &records); err != nil {
		return nil, err
	}
	var left []observed.Refusal
	bound := map[string]bool{}
	for i := range records.Items {
		name, spec := records.Items[i].Name, &records.Items[i].Spec
		bound[name] = spec.State == v1alpha1.NodeBound
		if bound[name] && spec.LastEnd != nil && spec.Scope == insecure.Scope("").String() {
			left = append(left, observed.Refusal{Node: name, Message: "a node without evidence: its certificate is not renewed and ends " + spec.LastEnd.UTC().Format(time.RFC3339)})
		}
	}
	for next := ""; ; {
		var nodes metav1.PartialObjectMetadataList
		nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := p.client.List(ctx, &nodes, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			if name := nodes.Items[i].Name; !bound[name] {
				left = append(left, observed.Refusal{Node: name, Message: "a Node for which no machine is recorded"})
			}
		}
		if next = nodes.Continue; next == "" {
			return left, nil
		}
	}
}
