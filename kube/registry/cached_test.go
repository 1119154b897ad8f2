package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// nodesOnly is a cache that holds nodes, and fails the test that asks it for what points to
// them. It is as it was when it was last told to see.
type nodesOnly struct {
	client.Client
	*testing.T
	informer *controllertest.FakeInformer
	seen     map[string]*v1alpha1.AttestedNode
	down     error // of reads
}

// asCache is the part of a cache that is asked.
type asCache struct {
	cache.Cache
	nodes *nodesOnly
}

func (c asCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.nodes.Get(ctx, key, o, options...)
}

func (c asCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.nodes.informer, nil
}

// newNodesOnly makes one that is empty, and the reader out of it.
func newNodesOnly(t *testing.T) (*nodesOnly, client.Reader) {
	t.Helper()
	scheme := runtime.NewScheme()
	testkit.MustDo(v1alpha1.AddToScheme(scheme))
	nodes := &nodesOnly{T: t, Client: fake.NewClientBuilder().WithScheme(scheme).Build(), informer: controllertest.NewFakeInformer(controllertest.Synced)}
	reader := testkit.Must(registry.Cached(t.Context(), asCache{nodes: nodes}))
	return nodes, reader
}

// see tells the listeners of changes to the nodes.
func (n *nodesOnly) see() {
	n.Helper()
	var all v1alpha1.AttestedNodeList
	if err := n.List(n.Context(), &all); err != nil {
		n.Fatal(err)
	}
	now := map[string]*v1alpha1.AttestedNode{}
	for i := range all.Items {
		o := &all.Items[i]
		now[o.Name] = o
		if before := n.seen[o.Name]; before != nil {
			n.informer.Update(before, o)
		} else {
			n.informer.Add(o)
		}
	}
	for name, before := range n.seen {
		if now[name] == nil {
			n.informer.Delete(before)
		}
	}
	n.seen = now
}

func (n *nodesOnly) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, ok := o.(*v1alpha1.AttestedNode); !ok {
		n.Errorf("%T was asked for", o)
	}
	if n.down != nil {
		return n.down
	}
	return n.Client.Get(ctx, key, o, options...)
}

// TestCached finds by a cache of nodes alone the records that a registry finds by pointers.
func TestCached(t *testing.T) {
	nodes, reader := newNodesOnly(t)
	live := testkit.Must(registry.New(membership.Scope{Cluster: "cluster-1"}, nodes.Client, nodes.Client, registry.Options{Stale: reader, Now: at}))
	join := func(c membership.Claim, lastEnd time.Time) {
		t.Helper()
		record, err := live.Reserve(t.Context(), c, at().Add(time.Minute))
		if err == nil {
			_, err = live.Bind(t.Context(), record, lastEnd, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	join(claim("bound", "1", "uid-1"), time.Time{})
	join(claim("gone", "2", "uid-2"), at().Add(time.Hour))
	if _, err := live.Release(t.Context(), "gone", "uid-2"); err != nil {
		t.Fatal(err)
	}
	join(claim("moved", "2", "uid-3"), time.Time{})
	if _, err := live.Reserve(t.Context(), claim("reserved", "4", "uid-4"), at().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	nodes.see()
	for name, row := range map[string]struct {
		claim         membership.Claim
		byMachine     string // the nodes that are found
		byUID, byName string
	}{
		"a bound one":                     {claim("bound", "1", "uid-1"), "bound", "bound", "bound"},
		"a reserved one":                  {claim("reserved", "4", "uid-4"), "reserved", "reserved", "reserved"},
		"one that rests, and its machine": {claim("gone", "2", "uid-2"), "moved", "gone", "gone"},
		"unknown":                         {claim("unknown", "9", "uid-9"), "", "", ""},
		"without a UID":                   {claim("unknown", "9", ""), "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []*registry.Registry{live, live.Stale()} {
				byName, err1 := r.Lookup(t.Context(), row.claim.NodeName)
				byMachine, err2 := r.LookupMachine(t.Context(), row.claim.Machine)
				byUID, err3 := r.LookupMachineUID(t.Context(), row.claim.MachineUID)
				testkit.MustDo(errors.Join(err1, err2, err3))
				if nameOf(byName) != row.byName || nameOf(byMachine) != row.byMachine || nameOf(byUID) != row.byUID {
					t.Errorf("found %q, %q, %q, want %q, %q, %q", nameOf(byName), nameOf(byMachine), nameOf(byUID), row.byName, row.byMachine, row.byUID)
				}
			}
		})
	}
}

// TestCachedFollows finds a node by its present identities: not by earlier ones, whether the cache or
// its listener sees a change first, and not when it is gone.
func TestCachedFollows(t *testing.T) {
	nodes, reader := newNodesOnly(t)
	find := func(machine, uid string) string {
		t.Helper()
		var byMachine v1alpha1.AttestedMachine
		var byUID v1alpha1.AttestedMachineUID
		err1 := reader.Get(t.Context(), client.ObjectKey{Name: v1alpha1.PointerName(machine)}, &byMachine)
		err2 := reader.Get(t.Context(), client.ObjectKey{Name: v1alpha1.PointerName(uid)}, &byUID)
		testkit.MustDo(errors.Join(client.IgnoreNotFound(err1), client.IgnoreNotFound(err2)))
		if err1 == nil && byMachine.Spec.Machine != machine || err2 == nil && byUID.Spec.MachineUID != uid {
			t.Errorf("found %q and %q, want %q and %q", byMachine.Spec.Machine, byUID.Spec.MachineUID, machine, uid)
		}
		return byMachine.Spec.NodeName + " " + byUID.Spec.NodeName
	}
	want := func(what, machine, uid, names string) {
		t.Helper()
		if got := find(machine, uid); got != names {
			t.Errorf("%s: found %q, want %q", what, got, names)
		}
	}
	o := &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.AttestedNodeSpec{Machine: "test:1", MachineUID: "uid-1", State: v1alpha1.NodeBound}}
	testkit.MustDo(nodes.Create(t.Context(), o))
	want("not seen", "test:1", "uid-1", " ")
	nodes.see()
	want("seen", "test:1", "uid-1", "a a")
	nodes.see() // again, as after a resync
	o.Spec.Machine = "test:2"
	testkit.MustDo(nodes.Update(t.Context(), o))
	want("rebound, not seen", "test:1", "uid-1", " a")
	nodes.see()
	want("rebound, before", "test:1", "uid-1", " a")
	want("rebound, now", "test:2", "uid-1", "a a")
	testkit.MustDo(nodes.Delete(t.Context(), o))
	want("deleted, not seen", "test:2", "uid-1", " ")
	nodes.see()
	want("deleted", "test:2", "uid-1", " ")
	node := func(name, uid string) *v1alpha1.AttestedNode {
		return &v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.AttestedNodeSpec{Machine: "test:3", MachineUID: uid, State: v1alpha1.NodeBound}}
	}
	one, two := node("b", "uid-3"), node("c", "uid-4")
	testkit.MustDo(errors.Join(nodes.Create(t.Context(), one), nodes.Create(t.Context(), two)))
	nodes.see()
	testkit.MustDo(nodes.Delete(t.Context(), one))
	nodes.see()
	want("one of two deleted", "test:3", "uid-4", "c c")
	two.Spec.MachineUID = "uid-5"
	testkit.MustDo(nodes.Update(t.Context(), two))
	nodes.see()
	want("adopted", "test:3", "uid-5", "c c")
	nodes.down = errors.New("the cache has not started")
	if err := reader.Get(t.Context(), client.ObjectKey{Name: v1alpha1.PointerName("test:3")}, new(v1alpha1.AttestedMachine)); !errors.Is(err, nodes.down) {
		t.Errorf("a cache that fails: %v", err)
	}
	nodes.down = nil
	want("without identity", "", "", " ")
	for _, name := range []string{"", "zz", v1alpha1.PointerName("test:2") + "00"} {
		if err := reader.Get(t.Context(), client.ObjectKey{Name: name}, new(v1alpha1.AttestedMachine)); !apierrors.IsNotFound(err) {
			t.Errorf("%q: got %v, want NotFound", name, err)
		}
	}
}

func nameOf(r *membership.Record) string {
	if r == nil {
		return ""
	}
	return r.NodeName
}

// TestLean leaves of a node all but who wrote it, and keeps its texts once.
func TestLean(t *testing.T) {
	lean := registry.Lean()
	makeNode := func(name string) *v1alpha1.AttestedNode {
		n := &v1alpha1.AttestedNode{TypeMeta: metav1.TypeMeta{Kind: strings.Clone("AttestedNode")},
			ObjectMeta: metav1.ObjectMeta{Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}},
			Spec:       v1alpha1.AttestedNodeSpec{Scope: strings.Clone("ek P-256"), State: v1alpha1.NodeState(strings.Clone("Bound")), Machine: "test:" + name, MachineUID: "uid-of-" + name}}
		n.Spec.Certificates = []v1alpha1.IssuedCertificate{
			{SignerName: strings.Clone("example.com/signer"), Machine: strings.Clone(n.Spec.Machine), MachineUID: strings.Clone(n.Spec.MachineUID)},
			{SignerName: strings.Clone("example.com/signer"), Machine: "test:before", MachineUID: "uid-before"},
		}
		return n
	}
	var got [2]*v1alpha1.AttestedNode
	for i, name := range []string{"a", "b"} {
		want := makeNode(name)
		want.ManagedFields = nil
		given := makeNode(name)
		given.Status.Boot = &v1alpha1.MeasuredBoot{Machine: "test:1"}
		kept, err := lean(given)
		if err != nil || !apiequality.Semantic.DeepEqual(kept, want) {
			t.Fatalf("kept %+v, %v, want %+v", kept, err, want)
		}
		got[i] = kept.(*v1alpha1.AttestedNode)
		for what, texts := range map[string][2]string{
			"machine":     {got[i].Spec.Machine, got[i].Spec.Certificates[0].Machine},
			"Machine UID": {got[i].Spec.MachineUID, got[i].Spec.Certificates[0].MachineUID},
		} {
			if unsafe.StringData(texts[0]) != unsafe.StringData(texts[1]) {
				t.Errorf("%s has its %s twice", name, what)
			}
		}
	}
	for what, text := range map[string]func(n *v1alpha1.AttestedNode) string{
		"kind":   func(n *v1alpha1.AttestedNode) string { return n.Kind },
		"scope":  func(n *v1alpha1.AttestedNode) string { return n.Spec.Scope },
		"state":  func(n *v1alpha1.AttestedNode) string { return string(n.Spec.State) },
		"signer": func(n *v1alpha1.AttestedNode) string { return n.Spec.Certificates[1].SignerName },
	} {
		if unsafe.StringData(text(got[0])) != unsafe.StringData(text(got[1])) {
			t.Errorf("two nodes have the %s twice", what)
		}
	}
	other := &v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	if kept, err := lean(other); err != nil || kept != any(other) || other.ManagedFields != nil {
		t.Errorf("kept %+v, %v", kept, err)
	}
	names := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"a": "b"}}}
	want := &metav1.PartialObjectMetadata{TypeMeta: names.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7"}}
	if kept, err := lean(names); err != nil || !apiequality.Semantic.DeepEqual(kept, want) {
		t.Errorf("kept %+v, %v, want %+v", kept, err, want)
	}
	gone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	if kept, err := lean(gone); err != nil || kept != any(gone) {
		t.Errorf("kept %v, %v", kept, err)
	}
}
