package operatorprogram

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
	"github.com/nodeattest/nodeattest/kube/internal/observed"
	"github.com/nodeattest/nodeattest/refusal"
)

// observed lists who is left: what a controller that observes would have refused, and the
// Nodes that have not attested yet.
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
	for _, name := range left {
		if !slices.ContainsFunc(lines, func(line observed.Refusal) bool { return line.Node == name }) {
			lines = append(lines, observed.Refusal{Node: name, Message: "a Node, and no machine is recorded for it"})
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

// unattested returns the names of the Nodes without a bound record.
func (p *plugin) unattested(ctx context.Context) ([]string, error) {
	var records v1alpha1.AttestedNodeList
	if err := p.client.List(ctx, &records); err != nil {
		return nil, err
	}
	bound := map[string]bool{}
	for i := range records.Items {
		bound[records.Items[i].Name] = records.Items[i].Spec.State == v1alpha1.NodeBound
	}
	var names []string
	for next := ""; ; {
		var nodes metav1.PartialObjectMetadataList
		nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := p.client.List(ctx, &nodes, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			if name := nodes.Items[i].Name; !bound[name] {
				names = append(names, name)
			}
		}
		if next = nodes.Continue; next == "" {
			return names, nil
		}
	}
}
