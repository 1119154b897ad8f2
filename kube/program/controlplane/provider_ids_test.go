package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/oid"
)

// compared is an API server, the reads of it, and a comparer's reports.
type compared struct {
	client.Client // where there is no cache: Nodes are read from it
	*comparer
	t      *testing.T
	events *events.FakeRecorder
	reads  int
	down   error
}

func (c *compared) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	c.reads++
	if c.down != nil {
		return c.down
	}
	return c.Client.Get(ctx, key, o, options...)
}

func newCompared(t *testing.T) *compared {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1alpha1.AddToScheme} {
		testkit.MustDo(add(scheme))
	}
	c := &compared{t: t, Client: fake.NewClientBuilder().WithScheme(scheme).Build(), events: events.NewFakeRecorder(1000)}
	var err error
	if c.comparer, err = newComparer(c.Client, c, c.events, prometheus.NewRegistry()); err != nil {
		t.Fatal(err)
	}
	return c
}

// record makes a record, and node a Node; an object of the name that is there is gone.
func (c *compared) record(name, id string, state v1alpha1.NodeState) {
	c.replace(&v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{Scope: "ak", Machine: "test:1", ProviderID: id, State: state}})
}

func (c *compared) node(name, uid, id string) {
	c.replace(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, Spec: corev1.NodeSpec{ProviderID: id}})
}

func (c *compared) replace(o client.Object) {
	c.t.Helper()
	c.remove(o)
	if err := c.Create(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

func (c *compared) remove(o client.Object) {
	c.t.Helper()
	if err := client.IgnoreNotFound(c.Delete(c.t.Context(), o)); err != nil {
		c.t.Fatal(err)
	}
}

// tells compares, and wants these Events, so many reads of Nodes and so many Nodes that differ.
func (c *compared) tells(what string, reads, differ int, want ...string) {
	c.t.Helper()
	c.reads = 0
	if err := c.compare(c.t.Context()); !errors.Is(err, c.down) {
		c.t.Errorf("%s: %v", what, err)
	}
	var got []string
	for len(c.events.Events) > 0 {
		got = append(got, <-c.events.Events)
	}
	if len(got) != len(want) || c.reads != reads || testutil.ToFloat64(c.gauge) != float64(differ) {
		c.t.Errorf("%s: %q after %d reads, and %g differ; want %q, %d, %d", what, got, c.reads, testutil.ToFloat64(c.gauge), want, reads, differ)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			c.t.Errorf("%s: got %s, want %s", what, got[i], want[i])
		}
	}
}

// TestComparer: a difference is told once when it begins, changes and ends, and a Node that has its
// provider ID is not read again.
func TestComparer(t *testing.T) {
	c := newCompared(t)
	const ours, theirs = "gce://project/zone/vm-1", "gce://project/zone/vm-2"
	c.tells("nothing at all", 0, 0)
	c.record("node-1", ours, v1alpha1.NodeBound)
	c.tells("no Node", 0, 0)
	c.node("node-1", "uid-1", "")
	c.tells("a Node without one", 1, 0)
	c.tells("it has not changed", 0, 0)
	var node corev1.Node
	testkit.MustDo(c.Client.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &node))
	node.Spec.ProviderID = ours
	testkit.MustDo(c.Update(t.Context(), &node))
	c.tells("the same", 1, 0)
	node.Labels = map[string]string{"a": "b"}
	testkit.MustDo(c.Update(t.Context(), &node))
	c.tells("it lives, and cannot change that", 0, 0)

	c.node("node-1", "uid-2", theirs)
	c.tells("another Node", 1, 1, `Warning ProviderIDDiffers the Node has provider ID "`+theirs+`" where its record has "`+ours+`"`)
	for range 3 {
		c.tells("again", 0, 1)
	}
	c.down = errors.New("down")
	c.node("node-1", "uid-3", theirs)
	c.tells("it cannot be read", 1, 1)
	c.down = nil
	c.tells("the same again", 1, 1)
	c.record("node-1", ours+"0", v1alpha1.NodeBound)
	c.tells("another record", 0, 1, ours+`0"`)
	c.record("node-1", theirs, v1alpha1.NodeBound)
	c.tells("adopted", 0, 0, `Normal ProviderIDAgrees the Node no longer has provider ID "`+theirs+`" where its record has "`+ours+`0"`)

	c.record("node-1", ours, v1alpha1.NodeBound)
	c.tells("and back", 0, 1, "Differs")
	c.remove(&node)
	c.tells("the Node is gone", 0, 0, "Agrees")
	c.node("node-1", "uid-4", theirs)
	c.tells("and back", 1, 1, "Differs")
	c.record("node-1", ours, v1alpha1.NodeResting)
	c.tells("released", 0, 0, "Agrees")
}

// Empty provider IDs, and other spellings of one.
func TestComparerAgrees(t *testing.T) {
	const vm = "azure:///subscriptions/8a205152-b25a-417f-a676-80465535a6c9/resourceGroups/a/providers/Microsoft.Compute/virtualMachines/1"
	long := strings.Repeat("x", oid.MaxProviderIDSize)
	for name, row := range map[string]struct {
		recorded, node string
		state          v1alpha1.NodeState
		reads, differ  int
	}{
		"a record without one":        {"", "a://1", v1alpha1.NodeBound, 0, 0},
		"a reservation":               {"a://1", "a://2", v1alpha1.NodeReserved, 0, 0},
		"Azure's, in other letters":   {vm, strings.ToUpper(vm), v1alpha1.NodeBound, 1, 0},
		"Azure's, another one's":      {vm, strings.ToUpper(vm) + "0", v1alpha1.NodeBound, 1, 1},
		"another's, in other letters": {"aws:///z/i-a", "aws:///z/I-A", v1alpha1.NodeBound, 1, 1},
		"the longest":                 {long, long, v1alpha1.NodeBound, 1, 0},
		"longer than any":             {long, long + "x", v1alpha1.NodeBound, 1, 1},
		"a megabyte, with escapes":    {"a://1", strings.Repeat("\x1b", 1<<20), v1alpha1.NodeBound, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompared(t)
			c.record("node-1", row.recorded, row.state)
			c.node("node-1", "uid-1", row.node)
			var want []string
			if row.differ > 0 {
				want = []string{"ProviderIDDiffers"}
			}
			c.tells(name, row.reads, row.differ, want...)
			if id := c.nodes["node-1"].id; len(id) > oid.MaxProviderIDSize+1 {
				t.Errorf("%d bytes of a Node are kept", len(id))
			}
		})
	}
}

// Many new Nodes are read in several turns, and of none is a difference lost.
func TestComparerManyNodes(t *testing.T) {
	c := newCompared(t)
	c.most = 3
	many := 2*c.most + 1
	for i := range many {
		name := fmt.Sprintf("node-%d", i)
		c.record(name, "a://1", v1alpha1.NodeBound)
		c.node(name, "uid-"+name, "a://2")
	}
	for _, reads := range []int{c.most, c.most, 1, 0} {
		told := make([]string, reads)
		c.tells("a turn", reads, min(many, len(c.differ)+reads), told...)
	}
}
