package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/program/internal/insecure"
	"github.com/nodeattest/nodeattest/refusal"
)

// nodes lists the records: the machine of each node, its kind of evidence, and when its last certificate
// ends. A certificate without evidence is not renewed.
func (p *plugin) nodes(ctx context.Context, _ string) error {
	var records v1alpha1.AttestedNodeList
	if err := p.client.List(ctx, &records); err != nil {
		return err
	}
	slices.SortFunc(records.Items, func(a, b v1alpha1.AttestedNode) int { return cmp.Compare(a.Name, b.Name) })
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tSTATE\tEVIDENCE\tMACHINE\tCERTIFICATES END")
	for i := range records.Items {
		s := &records.Items[i].Spec
		ends := ""
		if s.LastEnd != nil {
			ends = s.LastEnd.UTC().Format(time.RFC3339)
		}
		evidence := "unknown"
		switch scope, err := membership.ParseScope(s.Scope); {
		case err != nil:
		case s.Scope == insecure.Scope("").String():
			evidence = "NONE"
			if ends != "" {
				ends += ", not renewed"
			}
		default:
			evidence = cmp.Or(scope.Provider, tpm.Provider)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", refusal.Text(records.Items[i].Name), refusal.Text(string(s.State)), refusal.Text(evidence), refusal.Text(s.Machine), ends)
	}
	return w.Flush()
}
