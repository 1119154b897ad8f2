package kubectl

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/clusterapi"
)

// heldNode is the record of a node that the controller holds: its Machine has been missing for an hour.
func heldNode(name string, change ...func(*v1alpha1.AttestedNode)) client.Object {
	n := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		clusterapi.AnnotationMachine: "fleet/work/machine-of-" + name, clusterapi.AnnotationMachineUID: "uid-of-" + name, clusterapi.AnnotationGone: "2026-03-02T11:00:00Z"}},
		Spec: v1alpha1.AttestedNodeSpec{Scope: "strange document", Machine: "strange:" + name[len(name)-1:], MachineUID: "uid-of-" + name, State: v1alpha1.NodeBound,
			LastEnd: &metav1.Time{Time: time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)}}}
	for _, f := range change {
		f(n)
	}
	return n
}

func withoutNote(key string) func(*v1alpha1.AttestedNode) {
	return func(n *v1alpha1.AttestedNode) { delete(n.Annotations, key) }
}

// changing changes the record of node-1 when it is read for the first time after the list.
type changing struct {
	client.Client
	change func(*v1alpha1.AttestedNode)
}

func (c *changing) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if change := c.change; change != nil && key.Name == "node-1" {
		c.change = nil
		var n v1alpha1.AttestedNode
		testkit.MustDo(c.Client.Get(ctx, key, &n))
		change(&n)
		testkit.MustDo(c.Client.Update(ctx, &n))
	}
	return c.Client.Get(ctx, key, into, options...)
}

// TestReleaseGone: nodes are released that the controller holds, were shown and are held still, once the
// operator has said so.
func TestReleaseGone(t *testing.T) {
	for name, row := range map[string]struct {
		node      func(*v1alpha1.AttestedNode) // changes node-1
		answer    string
		yes, pipe bool
		meanwhile func(*v1alpha1.AttestedNode) // changes node-1 after it was shown
		released  string
		says      string
		err       string
	}{
		"y":                             {answer: "y\n", released: "node-1 node-2", says: "2 released, 0 not"},
		"n":                             {answer: "n\n", err: "the answer was not y"},
		"no answer":                     {err: "the answer was not y"},
		"--yes":                         {yes: true, pipe: true, released: "node-1 node-2", says: "2 released"},
		"no terminal":                   {answer: "y\n", pipe: true, err: "standard input is not a terminal"},
		"one that is not held":          {node: withoutNote(clusterapi.AnnotationGone), answer: "y\n", released: "node-2", says: "1 released, 0 not"},
		"one of another Machine by now": {node: withoutNote(clusterapi.AnnotationMachineUID), answer: "y\n", released: "node-2", says: "1 released, 0 not"},
		"a bad time":                    {node: func(n *v1alpha1.AttestedNode) { n.Annotations[clusterapi.AnnotationGone] = "today" }, err: "AttestedNode node-1 has the annotation"},
		"its Machine is back meanwhile": {answer: "y\n", meanwhile: withoutNote(clusterapi.AnnotationGone), released: "node-2", says: "1 released, 1 not", err: "exit status 1"},
		"adopted meanwhile": {answer: "y\n", released: "node-2", says: "1 released, 1 not", err: "exit status 1", meanwhile: func(n *v1alpha1.AttestedNode) {
			n.Spec.MachineUID, n.Annotations[clusterapi.AnnotationMachineUID] = "another", "another"
		}},
		"rebound meanwhile": {answer: "y\n", meanwhile: func(n *v1alpha1.AttestedNode) { n.Spec.Machine = "strange:9" }, released: "node-2", says: "1 released, 1 not", err: "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if row.node == nil {
				row.node = func(*v1alpha1.AttestedNode) {}
			}
			o := operates(t, "", heldNode("node-1", row.node), heldNode("node-2"), heldNode("node-3", withoutNote(clusterapi.AnnotationGone)))
			o.in, o.terminal, o.yes = strings.NewReader(row.answer), !row.pipe, row.yes
			o.client = &changing{o.client, row.meanwhile}
			err := o.releaseGone(t.Context(), "")
			if (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
				t.Errorf("got %v, want %q", err, row.err)
			}
			if !strings.Contains(o.out.String(), row.says) {
				t.Errorf("%q, want %q", &o.out, row.says)
			}
			if row.released != "" && !strings.Contains(o.out.String(), "fleet/work/machine-of-node-2") {
				t.Errorf("the list is %q", &o.out)
			}
			var list v1alpha1.AttestedNodeList
			testkit.NoError(t, o.client.List(t.Context(), &list))
			var released []string
			for i := range list.Items {
				if list.Items[i].Spec.State == v1alpha1.NodeResting {
					released = append(released, list.Items[i].Name)
				}
			}
			if got := strings.Join(released, " "); got != row.released {
				t.Errorf("released %q, want %q\n%s", got, row.released, &o.err)
			}
		})
	}
	o := operates(t, "", heldNode("node-1", withoutNote(clusterapi.AnnotationGone)))
	if err := o.releaseGone(t.Context(), ""); err != nil || !strings.Contains(o.out.String(), "holds no node") {
		t.Errorf("none is held: %v, %q", err, &o.out)
	}
}
