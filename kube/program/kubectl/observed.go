package kubectl

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/program/internal/observed"
	"github.com/nodeattest/nodeattest/refusal"
)

// observedItem is a node in the output of observed.
type observedItem struct {
	Node string `json:"node"`
	// Left says whether the node would be lost by enforcing. False: it is gone, with no Node and no bound
	// record.
	Left bool `json:"left"`
	// Request, Signer, Requester and Reason describe the last request that would have been refused, and
	// Last is its time; all are missing for a node without such a request.
	Request   string     `json:"request,omitempty"`
	Signer    string     `json:"signer,omitempty"`
	Requester string     `json:"requester,omitempty"`
	Reason    string     `json:"reason,omitempty"`
	Last      *time.Time `json:"last,omitempty"`
	Message   string     `json:"message"`
}

// observed lists the requests that an observing controller would have refused, and the Nodes that have
// not attested yet.
func (p *plugin) observed(ctx context.Context, _ string) error {
	var table corev1.ConfigMap
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: observed.ConfigMap}, &table); err != nil {
		return err
	}
	all, err := p.all(ctx)
	if err != nil {
		return err
	}
	items := map[string]*observedItem{}
	for name, n := range all {
		if message := n.unattested(); message != "" {
			items[name] = &observedItem{Node: name, Message: message}
		}
	}
	for _, line := range observed.Parse(table.Data) {
		items[line.Node] = &observedItem{line.Node, false, line.Request, line.Signer, line.Requester, line.Reason, nil, line.Message}
		if !line.Last.IsZero() {
			items[line.Node].Last = &line.Last
		}
	}
	left := false
	for name, item := range items {
		n := all[name]
		item.Left = n != nil && (n.Registered || n.State == string(v1alpha1.NodeBound))
		left = left || item.Left
	}
	l := list[*observedItem]{"Observed", (*observedItem).name, []column[*observedItem]{
		{"NODE", func(o *observedItem) string { return o.Node }, false},
		{"LEFT", func(o *observedItem) string { return yesNo(o.Left) }, false},
		{"REQUEST", func(o *observedItem) string { return refusal.Text(o.Request) }, false},
		{"SIGNER", func(o *observedItem) string { return refusal.Text(o.Signer) }, true},
		{"REQUESTER", func(o *observedItem) string { return refusal.Text(o.Requester) }, false},
		{"AGE", func(o *observedItem) string { return p.age(o.Last) }, false},
		{"WOULD BE REFUSED", (*observedItem).why, false},
	}}
	sorted := slices.SortedFunc(maps.Values(items), func(a, b *observedItem) int { return cmp.Compare(a.Node, b.Node) })
	if err := l.print(p, sorted); err != nil {
		return err
	}
	if left && p.exitCode {
		return exitStatus(1)
	}
	return nil
}

// name is empty for requests without a valid node name, and for a node that is gone.
func (o *observedItem) name() string {
	if !o.Left {
		return ""
	}
	return o.Node
}

func (o *observedItem) why() string {
	if o.Reason != "" {
		return refusal.Text(o.Reason + ": " + o.Message)
	}
	return refusal.Text(o.Message)
}

// age is how long ago a time was; empty without one.
func (p *plugin) age(at *time.Time) string {
	if at == nil {
		return ""
	}
	return p.now().Sub(*at).Round(time.Second).String()
}

// unattested says why a node is left; empty if it has attested. That is a Node without a bound record that
// can be read, or a record without evidence, of which the certificate's end is known.
func (n *nodeItem) unattested() string {
	switch bound := n.State == string(v1alpha1.NodeBound); {
	case bound && n.Evidence == noEvidence && n.CertificatesEnd != nil:
		return "a node without evidence: its certificate is not renewed and ends " + second(*n.CertificatesEnd)
	case n.Status == statusUnknown && n.Registered:
		return "a Node whose record this program cannot read"
	case !bound && n.Registered:
		return "a Node for which no machine is recorded"
	}
	return ""
}
