package clusterapi

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// swept is a management cluster and the records of the workload cluster, with a clock.
type swept struct {
	mu     sync.Mutex
	clock  time.Time
	nodes  *objectstore.Store
	home   client.WithWatch // the management cluster
	fails  func(kind string) error
	empty  bool            // lists have no Machines
	living map[string]bool // UIDs of Machines
	wrong  []string        // released although the Machine is living
}

func (s *swept) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock
}

func (s *swept) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// List reads the management cluster, or fails.
func (s *swept) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		if err := s.fails(into.GetObjectKind().GroupVersionKind().Kind); err != nil {
			return err
		}
	}
	if s.empty && into.GetObjectKind().GroupVersionKind().Kind == "MachineList" {
		return nil
	}
	return s.home.List(ctx, into, options...)
}

// Get reads the management cluster with the rights of kube/deploy/clusterapi, by which Clusters and MachinePools can
// only be listed.
func (s *swept) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if kind := into.GetObjectKind().GroupVersionKind().Kind; kind == "Cluster" || kind == poolKind {
		return apierrors.NewForbidden(schema.GroupResource{Group: coreGroup, Resource: kind}, key.Name, nil)
	}
	return s.home.Get(ctx, key, into, options...)
}

// watched is the client of the workload cluster. It notices each release of a Machine that is living.
type watched struct {
	client.Client
	of *swept
}

func (w watched) notice(name, uid string) {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.of.living[uid] {
		w.of.wrong = append(w.of.wrong, name)
	}
}

func (w watched) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if n, ok := o.(*v1alpha1.AttestedNode); ok && n.Spec.State == v1alpha1.NodeResting {
		w.notice(n.Name, n.Spec.MachineUID)
	}
	return w.Client.Update(ctx, o, options...)
}

func (w watched) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	if n, ok := o.(*v1alpha1.AttestedNode); ok {
		w.notice(n.Name, n.Spec.MachineUID)
	}
	return w.Client.Delete(ctx, o, options...)
}

// newSwept makes a Cluster with Machines machine-0 and so on, each with a bound record.
func newSwept(t *testing.T, machines int) *swept {
	t.Helper()
	s := &swept{clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nodes: objectstore.New(), living: map[string]bool{}}
	i := newInventory(t, "v1beta2", recorded(t, ""), nil, nil)
	s.home = i.stored(t, "v1beta2", []client.Object{clusterOf("v1beta2", nil)})
	r := s.registry()
	for n := range machines {
		s.create(t, fmt.Sprint("machine-", n))
		s.record(t, r, n, "machine-"+fmt.Sprint(n))
	}
	return s
}

// create makes a Machine.
func (s *swept) create(t *testing.T, name string) {
	t.Helper()
	testkit.NoError(t, s.home.Create(t.Context(), machineOf("v1beta2", name)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.living[string(testUID(name))] = true
}

// identity is the identity of the nth machine.
func identity(n int) attest.Identity { return attest.Identity(fmt.Sprintf("ek:sha256:%064x", n)) }

// record has node-n be the nth machine, by a Machine.
func (s *swept) record(t *testing.T, r *registry.Registry, n int, name string) {
	t.Helper()
	claim := membership.Claim{NodeName: fmt.Sprint("node-", n), Machine: identity(n), MachineUID: string(testUID(name))}
	reserved := testkit.Must(r.Reserve(t.Context(), claim, s.now().Add(time.Minute)))
	testkit.Must(r.Bind(t.Context(), reserved, s.now().Add(24*time.Hour), nil))
}

func (s *swept) registry() *registry.Registry {
	scope := membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "RSA-2048"}
	c := watched{s.nodes, s}
	return testkit.Must(registry.New(scope, c, c, registry.Options{Now: s.now}))
}

// sweeper is the sweep of one process.
func (s *swept) sweeper(t *testing.T) *sweep {
	t.Helper()
	i := newInventory(t, "v1beta2", recorded(t, ""), nil, nil)
	i.live = s
	i.follow = &Follow{Records: registry.Several{s.registry()}, Nodes: watched{s.nodes, s}, Metrics: prometheus.NewRegistry()}
	made := testkit.Must(newSweep(i))
	made.now = s.now
	return made
}

// remove deletes a Machine.
func (s *swept) remove(t *testing.T, name string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.living, string(testUID(name)))
	testkit.NoError(t, s.home.Delete(t.Context(), machineOf("v1beta2", name)))
}

// change changes an object of the management cluster.
func (s *swept) change(t *testing.T, o client.Object, how func(o client.Object)) {
	t.Helper()
	testkit.NoError(t, s.home.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	how(o)
	testkit.NoError(t, s.home.Update(t.Context(), o))
}

// states returns the names of nodes whose record is bound, and of the ones that are held.
func (s *swept) states(t *testing.T) (bound, held []string) {
	t.Helper()
	var list v1alpha1.AttestedNodeList
	testkit.NoError(t, s.nodes.Client.List(t.Context(), &list))
	for i := range list.Items {
		if n := &list.Items[i]; n.Spec.State == v1alpha1.NodeBound {
			bound = append(bound, n.Name)
			if n.Annotations[AnnotationGone] != "" {
				held = append(held, n.Name)
			}
		}
	}
	return bound, held
}

// pause pauses the Cluster, or ends that.
func (s *swept) pause(t *testing.T, paused bool) {
	t.Helper()
	s.change(t, clusterOf("v1beta2", nil), func(o client.Object) { content(o)["spec"] = fields{"paused": paused} })
}

func withNote(key, value string) func(client.Object) {
	return func(o client.Object) {
		notes := map[string]string{key: value}
		for k, v := range o.GetAnnotations() {
			if k != key {
				notes[k] = v
			}
		}
		o.SetAnnotations(notes)
	}
}

// TestSweepReleases deletes the Machine of node-0 among some, and changes one thing at a time.
func TestSweepReleases(t *testing.T) {
	cluster := clusterOf("v1beta2", nil)
	forbidden := func(kind string) func(string) error {
		return func(of string) error {
			if of != kind+"List" {
				return nil
			}
			return apierrors.NewForbidden(schema.GroupResource{Group: coreGroup, Resource: kind}, "", nil)
		}
	}
	for name, row := range map[string]struct {
		machines int
		before   func(t *testing.T, s *swept) // before the Machine is deleted, after a sweep
		gone     []int                        // node-0 alone if nil
		between  func(t *testing.T, s *swept) // between two sweeps
		fresh    bool                         // another process sweeps after that
		kept     bool                         // nothing is released
		held     int
	}{
		"one of three":                  {machines: 3},
		"one alone":                     {machines: 1},
		"two of twenty":                 {machines: 20, gone: []int{0, 1}},
		"two of three":                  {machines: 3, gone: []int{0, 1}, kept: true, held: 2},
		"three of twenty":               {machines: 20, gone: []int{0, 1, 2}, kept: true, held: 3},
		"another process in between":    {machines: 3, fresh: true, kept: true},
		"Machines cannot be listed":     {machines: 3, between: func(_ *testing.T, s *swept) { s.fails = forbidden("Machine") }, kept: true},
		"Clusters cannot be listed":     {machines: 3, between: func(_ *testing.T, s *swept) { s.fails = forbidden("Cluster") }, kept: true},
		"the Cluster is paused":         {machines: 3, between: func(t *testing.T, s *swept) { s.pause(t, true) }, kept: true},
		"the Cluster was paused before": {machines: 3, before: func(t *testing.T, s *swept) { s.pause(t, true) }, between: func(t *testing.T, s *swept) { s.pause(t, false) }, kept: true},
		"the Cluster is paused by an annotation": {machines: 3, kept: true, between: func(t *testing.T, s *swept) {
			s.change(t, cluster.DeepCopy(), withNote(pausedAnnotation, "true"))
		}},
		"the Cluster is being moved": {machines: 3, kept: true, between: func(t *testing.T, s *swept) {
			s.change(t, cluster.DeepCopy(), withNote(deleteForMove, ""))
		}},
		"the Cluster is gone": {machines: 3, kept: true, between: func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), cluster.DeepCopy()))
		}},
		"another Cluster has its name": {machines: 3, kept: true, between: func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), cluster.DeepCopy()))
			other := cluster.DeepCopy()
			other.SetUID("another")
			testkit.NoError(t, s.home.Create(t.Context(), other))
		}},
		"the Cluster is being deleted": {machines: 3, kept: true, before: func(t *testing.T, s *swept) {
			s.change(t, cluster.DeepCopy(), func(o client.Object) { o.SetFinalizers([]string{"cluster.cluster.x-k8s.io"}) })
		}, between: func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), cluster.DeepCopy()))
		}},
		"the Machine is back": {machines: 3, kept: true, between: func(t *testing.T, s *swept) { s.create(t, "machine-0") }},
		"the Machine is back without its label": {machines: 3, kept: true, between: func(t *testing.T, s *swept) {
			s.create(t, "machine-0")
			s.change(t, machineOf("v1beta2", "machine-0"), func(o client.Object) { o.SetLabels(nil) })
		}},
		"another Machine has its name": {machines: 3, kept: true, between: func(t *testing.T, s *swept) {
			other := machineOf("v1beta2", "machine-0")
			other.SetUID("another")
			testkit.NoError(t, s.home.Create(t.Context(), other))
		}},
		"the Machine was being moved": {machines: 3, kept: true, before: func(t *testing.T, s *swept) {
			s.change(t, machineOf("v1beta2", "machine-0"), withNote(deleteForMove, ""))
		}},
		"its Machine was never noted": {machines: 3, kept: true, before: func(t *testing.T, s *swept) { s.noteNode(t, AnnotationMachine, "") }},
		"another Cluster's record":    {machines: 3, kept: true, before: func(t *testing.T, s *swept) { s.noteNode(t, AnnotationMachine, namespace+"/other/machine-0") }},
		"another namespace's record":  {machines: 3, kept: true, before: func(t *testing.T, s *swept) { s.noteNode(t, AnnotationMachine, "other/"+work+"/machine-0") }},
		"a former record's note":      {machines: 3, kept: true, before: func(t *testing.T, s *swept) { s.noteNode(t, AnnotationMachineUID, "former") }},
		"a note that no sweep wrote":  {machines: 3, kept: true, before: func(t *testing.T, s *swept) { s.noteNode(t, AnnotationMachine, "machine-0") }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, row.machines)
			sweeps := s.sweeper(t)
			testkit.NoError(t, sweeps.run(t.Context()))
			if row.before != nil {
				row.before(t, s)
			}
			if row.gone == nil {
				row.gone = []int{0}
			}
			sweeps.machinesSeen(t) // as the run sees them before they go
			for _, n := range row.gone {
				s.remove(t, fmt.Sprint("machine-", n))
			}
			_ = sweeps.run(t.Context())
			if bound, held := s.states(t); len(bound) != row.machines || len(held) != 0 {
				t.Fatalf("after one list without the Machine: bound %q, held %q", bound, held)
			}
			if row.between != nil {
				row.between(t, s)
			}
			if row.fresh {
				sweeps = s.sweeper(t)
			}
			_ = sweeps.run(t.Context())
			want := row.machines - len(row.gone)
			if row.kept {
				want = row.machines
			}
			if bound, held := s.states(t); len(bound) != want || len(held) != row.held {
				t.Errorf("bound %q, want %d; held %q, want %d", bound, want, held, row.held)
			}
			if got := testutil.ToFloat64(sweeps.released); got != float64(row.machines-want) {
				t.Errorf("%v released by the metric, want %d", got, row.machines-want)
			}
			if got := testutil.ToFloat64(sweeps.records.WithLabelValues("held")); got != float64(row.held) {
				t.Errorf("%v held by the metric, want %d", got, row.held)
			}
		})
	}
}

// machinesSeen has the sweep read the Machines once, without a run.
func (s *sweep) machinesSeen(t *testing.T) {
	t.Helper()
	testkit.Must(s.machines(t.Context()))
}

// noteNode changes an annotation of the record of node-0.
func (s *swept) noteNode(t *testing.T, key, value string) {
	t.Helper()
	s.noteNodes(t, "node-0", key, value)
}

// noteNodes changes an annotation of a node's record.
func (s *swept) noteNodes(t *testing.T, name, key, value string) {
	t.Helper()
	n := &v1alpha1.AttestedNode{}
	n.Name = name
	testkit.NoError(t, s.nodes.Client.Get(t.Context(), client.ObjectKeyFromObject(n), n))
	withNote(key, value)(n)
	testkit.NoError(t, s.nodes.Client.Update(t.Context(), n))
}

// TestSweepNotes: the sweep notes the Machine of a bound record that the Cluster has, and takes the mark of
// a missing Machine away when the Machine is back.
func TestSweepNotes(t *testing.T) {
	s := newSwept(t, 3)
	other := machineOf("v1beta2", "machine-1")
	s.change(t, other, func(o client.Object) { o.SetLabels(map[string]string{clusterLabel: "other"}) })
	s.noteNode(t, AnnotationGone, "2026-01-01T00:00:00Z")
	sweeps := s.sweeper(t)
	testkit.NoError(t, sweeps.run(t.Context()))
	for name, want := range map[string]map[string]string{
		"node-0": {AnnotationMachine: "fleet/work/machine-0", AnnotationMachineUID: "uid-of-machine-0"},
		"node-1": nil,
		"node-2": {AnnotationMachine: "fleet/work/machine-2", AnnotationMachineUID: "uid-of-machine-2"},
	} {
		var n v1alpha1.AttestedNode
		testkit.NoError(t, s.nodes.Get(t.Context(), types.NamespacedName{Name: name}, &n))
		if fmt.Sprint(n.Annotations) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", name, n.Annotations, want)
		}
	}
	s.nodes.Counts()
	testkit.NoError(t, sweeps.run(t.Context()))
	if _, writes := s.nodes.Counts(); writes != 0 {
		t.Errorf("%d writes although nothing has changed", writes)
	}
	if got := testutil.ToFloat64(sweeps.records.WithLabelValues("there")); got != 2 {
		t.Errorf("%v there by the metric, want 2", got)
	}
	if got := testutil.ToFloat64(sweeps.swept); got != float64(s.now().Unix()) {
		t.Errorf("swept at %v by the metric", got)
	}
}

// TestSweepBeginsAnew: a run that cannot read everything makes the next one the first.
func TestSweepBeginsAnew(t *testing.T) {
	s := newSwept(t, 3)
	sweeps := s.sweeper(t)
	testkit.NoError(t, sweeps.run(t.Context()))
	s.remove(t, "machine-0")
	for n, want := range []struct {
		paused bool
		bound  int
	}{{false, 3}, {true, 3}, {false, 3}, {true, 3}, {false, 3}, {false, 2}} {
		s.pause(t, want.paused)
		if err := sweeps.run(t.Context()); (err != nil) != want.paused {
			t.Errorf("run %d: %v", n, err)
		}
		if bound, _ := s.states(t); len(bound) != want.bound {
			t.Errorf("run %d: bound %q, want %d", n, bound, want.bound)
		}
	}
}
