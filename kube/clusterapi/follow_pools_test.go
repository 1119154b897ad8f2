package clusterapi

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// poolSweeper is the sweep of one process that admits machines of pools.
func (s *swept) poolSweeper(t *testing.T) *sweep {
	t.Helper()
	made := s.sweeper(t)
	made.slots = &Slots{Nodes: s.nodes, Now: s.now, inventory: made.Inventory}
	return made
}

// following is a process whose records follow pools.
func (s *swept) following(t *testing.T) *admits {
	t.Helper()
	p := s.process(t)
	p.follow = &Follow{Records: registry.Several{s.registry()}, Nodes: s.nodes, Metrics: prometheus.NewRegistry()}
	return p
}

// anew makes an object of the management cluster again, with another UID.
func (s *swept) anew(t *testing.T, o *unstructured.Unstructured, uid string, how ...func(*unstructured.Unstructured)) {
	t.Helper()
	testkit.NoError(t, s.home.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	testkit.NoError(t, s.home.Delete(t.Context(), o.DeepCopy()))
	o.SetUID(testUID(uid))
	o.SetResourceVersion("")
	for _, f := range how {
		f(o)
	}
	testkit.NoError(t, s.home.Create(t.Context(), o))
}

// moves gives the Cluster, the pool and its KubeadmConfig other UIDs.
func (s *swept) moves(t *testing.T) {
	t.Helper()
	s.anew(t, clusterOf("v1beta2", nil), "moved-cluster")
	s.anew(t, poolOf("v1beta2", "pool", 0), "moved-pool")
	s.anew(t, poolConfigOf("v1beta2", "pool", "abcdef"), "moved-config", func(o *unstructured.Unstructured) {
		owner := ownedBy("v1beta2", poolKind, "pool")
		owner[0].UID = testUID("moved-pool")
		o.SetOwnerReferences(owner)
	})
}

func (s *swept) machineUID(t *testing.T, node string) string {
	t.Helper()
	return testkit.Must(s.registry().Lookup(t.Context(), node)).MachineUID
}

// TestMovedPool changes one thing about a pool whose three nodes have joined and were noted.
func TestMovedPool(t *testing.T) {
	slot := func(pool string, n int) string { return string(testUID(pool)) + "/" + string(identity(n)) }
	pool := func() *unstructured.Unstructured { return poolOf("v1beta2", "pool", 0) }
	for name, row := range map[string]struct {
		change  func(t *testing.T, s *swept)
		adopted int  // of the nodes
		waits   bool // node-0 does, before a sweep
		after   bool // and after it
		fails   bool // the sweep does
		renews  bool // node-0 does in the end
	}{
		"moved":                     {change: func(t *testing.T, s *swept) { s.moves(t) }, adopted: 3, waits: true, renews: true},
		"nothing changed":           {change: func(*testing.T, *swept) {}, renews: true},
		"the pool alone is another": {change: func(t *testing.T, s *swept) { s.anew(t, pool(), "moved-pool") }},
		"the pool was deleted and made again, and then moved": {change: func(t *testing.T, s *swept) {
			s.anew(t, pool(), "second-pool")
			testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
			s.moves(t)
		}},
		"the pool was deleted, moved, and made again": {change: func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), pool()))
			testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
			testkit.NoError(t, s.home.Create(t.Context(), poolOf("v1beta2", "pool", 3)))
			s.moves(t)
		}},
		"the pool was not found for a time, and then moved": {adopted: 3, waits: true, renews: true, change: func(t *testing.T, s *swept) {
			label := func(value string) {
				s.change(t, pool(), func(o client.Object) { o.SetLabels(map[string]string{clusterLabel: value}) })
				testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
			}
			label("other")
			label(work)
			s.moves(t)
		}},
		"the Cluster alone is another": {renews: true, change: func(t *testing.T, s *swept) {
			s.anew(t, clusterOf("v1beta2", nil), "moved-cluster")
		}},
		"the pool is gone": {change: func(t *testing.T, s *swept) {
			s.anew(t, clusterOf("v1beta2", nil), "moved-cluster")
			testkit.NoError(t, s.home.Delete(t.Context(), pool()))
		}},
		"moved, under another name": {change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.anew(t, pool(), "moved-pool", func(o *unstructured.Unstructured) { o.SetName("other") })
		}},
		"moved, to another Cluster": {change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.anew(t, pool(), "moved-pool", func(o *unstructured.Unstructured) { set(t, o, "other", "spec", "clusterName") })
		}},
		"moved, and being deleted": {change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.change(t, pool(), func(o client.Object) { o.SetFinalizers([]string{"machinepool.cluster.x-k8s.io"}) })
			testkit.NoError(t, s.home.Delete(t.Context(), pool()))
		}},
		"moved, and the Cluster is paused": {waits: true, after: true, fails: true, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.pause(t, true)
		}},
		"moved, and never noted": {adopted: 2, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.noteNode(t, AnnotationMachine, "")
		}},
		"moved, with the note of another record": {adopted: 2, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.noteNode(t, AnnotationMachineUID, slot("pool", 7))
		}},
		"moved, with a note of another namespace": {adopted: 2, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.noteNode(t, AnnotationMachine, "other/"+work+"/pool")
		}},
		"moved, with a note of another Cluster": {adopted: 2, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.noteNode(t, AnnotationMachine, namespace+"/other/pool")
		}},
		"moved, with no note of the Cluster's UID": {adopted: 2, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.noteNode(t, AnnotationClusterUID, "")
		}},
		"moved, and shut": {adopted: 3, waits: true, renews: true, change: func(t *testing.T, s *swept) {
			s.moves(t)
			m := marks()
			testkit.NoError(t, s.nodes.Get(t.Context(), client.ObjectKeyFromObject(m), m))
			m.Data = map[string]string{"pool": ""}
			testkit.NoError(t, s.nodes.Update(t.Context(), m))
		}},
		"moved, with two replicas": {adopted: 2, waits: true, after: true, fails: true, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.scale(t, 2)
		}},
		"moved, and another machine has its slot": {adopted: 2, waits: true, after: true, fails: true, change: func(t *testing.T, s *swept) {
			s.moves(t)
			testkit.NoError(t, s.process(t).join(t, 8))
		}},
		"moved, and MachinePools cannot be listed": {waits: true, after: true, fails: true, change: func(t *testing.T, s *swept) {
			s.moves(t)
			s.fails = func(kind string) error {
				if kind == "MachinePoolList" {
					return errFault
				}
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPooled(t, 3)
			p := s.following(t)
			for n := range 3 {
				s.pass(time.Second) // node-0 has the earliest certificate
				testkit.NoError(t, p.join(t, n))
			}
			testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
			row.change(t, s)
			if err := p.renew(t, 0); errors.Is(err, refusal.ErrRetry) != row.waits {
				t.Errorf("before the sweep: %v", err)
			}
			sweeps := s.poolSweeper(t)
			if err := sweeps.run(t.Context()); (err != nil) != row.fails {
				t.Errorf("the sweep: %v", err)
			}
			adopted := 0
			for n := range 3 {
				if got := s.machineUID(t, fmt.Sprint("node-", n)); got == slot("moved-pool", n) {
					adopted++
				} else if got != slot("pool", n) {
					t.Errorf("node-%d has Machine UID %s", n, got)
				}
			}
			if bound, _ := s.states(t); adopted != row.adopted || len(bound) < 3 {
				t.Errorf("%d adopted, want %d; bound: %q", adopted, row.adopted, bound)
			}
			if err := p.renew(t, 0); (err == nil) != row.renews || errors.Is(err, refusal.ErrRetry) != row.after {
				if !row.fails || err == nil {
					t.Errorf("after the sweep: %v", err)
				}
			}
			if row.adopted == 3 {
				p.boards = map[int]int{0: 7}
				if err := p.renew(t, 0); !refused(err) {
					t.Errorf("another machine with the certificate of node-0: %v", err)
				}
			}
		})
	}
}

// TestMovedPoolAtOnce has two processes adopt the nodes of a pool that has a replica less than nodes.
func TestMovedPoolAtOnce(t *testing.T) {
	for range 20 {
		s := newPooled(t, 4)
		for n := range 4 {
			s.pass(time.Second)
			s.joinsBy(t, n)
		}
		testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
		s.moves(t)
		s.scale(t, 3)
		sweepers := []*sweep{s.poolSweeper(t), s.poolSweeper(t)}
		for range 4 {
			var both sync.WaitGroup
			for _, one := range sweepers {
				both.Go(func() { _ = one.run(t.Context()) })
			}
			both.Wait()
		}
		for n, want := range []string{"pool", "moved-pool", "moved-pool", "moved-pool"} {
			if got := s.machineUID(t, fmt.Sprint("node-", n)); !strings.HasPrefix(got, string(testUID(want))+"/") {
				t.Fatalf("node-%d has Machine UID %s, want a slot of %s", n, got, want)
			}
		}
	}
}

// TestMovedPoolRebind: a node with another board keeps its slot in a move, which is named after the former one.
func TestMovedPoolRebind(t *testing.T) {
	s := newPooled(t, 1)
	p := s.following(t)
	testkit.NoError(t, p.join(t, 1))
	testkit.Must(s.registry().Rebind(t.Context(), testkit.Must(s.registry().Lookup(t.Context(), "node-1")), identity(7)))
	testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
	s.moves(t)
	testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
	if got, want := s.machineUID(t, "node-1"), string(testUID("moved-pool"))+"/"+string(identity(1)); got != want {
		t.Errorf("Machine UID %s, want %s", got, want)
	}
	p.boards = map[int]int{1: 7}
	testkit.NoError(t, p.renew(t, 1))
	testkit.NoError(t, p.join(t, 1)) // by the pool's token
}

// TestNamesakeOfPool: a Machine with the name of a MachinePool does not take a machine of the pool out of its slot,
// whether the record is bound or its name rests.
func TestNamesakeOfPool(t *testing.T) {
	for name, rests := range map[string]bool{"bound": false, "resting": true} {
		t.Run(name, func(t *testing.T) {
			s := newPooled(t, 1)
			p := s.following(t)
			testkit.NoError(t, p.join(t, 0))
			testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
			uid := s.machineUID(t, "node-0")
			owner := ownedBy("v1beta2", "Machine", "pool")
			owner[0].UID = testUID("namesake")
			m, config := machineOf("v1beta2", "pool"), configOf("v1beta2", "own", "uvwxyz")
			m.SetUID(testUID("namesake"))
			m.SetAnnotations(map[string]string{AnnotationIdentity: string(identity(0))})
			set(t, m, "own", "spec", "bootstrap", "configRef", "name")
			config.SetOwnerReferences(owner)
			testkit.NoError(t, errors.Join(s.home.Create(t.Context(), m), s.home.Create(t.Context(), config)))
			if rests {
				testkit.Must(s.registry().Release(t.Context(), "node-0", uid))
			}
			testkit.NoError(t, s.poolSweeper(t).run(t.Context()))
			by := csr.User{Username: "system:bootstrap:uvwxyz", Groups: bootstrap.Groups}
			if err := p.ask(t, 0, by, false, attest.StageAnswer); !refused(err) {
				t.Errorf("as the Machine of the pool's name: %v", err)
			}
			if got := s.machineUID(t, "node-0"); got != uid {
				t.Errorf("Machine UID %s, want %s", got, uid)
			}
		})
	}
}

// listed has the pool's provider list provider IDs of machines.
func (s *swept) listed(t *testing.T, machines ...int) {
	t.Helper()
	var ids []any
	for _, n := range machines {
		ids = append(ids, fmt.Sprint("metal://", n))
	}
	s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { content(o)["spec"].(fields)["providerIDList"] = ids })
}

// TestSweepPools takes provider IDs out of spec.providerIDList.
func TestSweepPools(t *testing.T) {
	all := []int{0, 1, 2}
	for name, row := range map[string]struct {
		unlisted bool                         // nothing is listed when the machines join
		before   func(t *testing.T, s *swept) // after a sweep
		list     []int                        // from then on
		between  func(t *testing.T, s *swept) // between two sweeps
		released int
		held     int
		missing  float64 // by the metric, in the end
	}{
		"one is gone":                  {list: []int{0, 2}, released: 1, missing: 1},
		"two are gone":                 {list: []int{0}, held: 2},
		"the list is empty":            {},
		"all are there":                {list: all},
		"it was never listed":          {unlisted: true, list: []int{0, 2}},
		"it is back in between":        {list: []int{0, 2}, between: func(t *testing.T, s *swept) { s.listed(t, all...) }},
		"the list is empty in between": {list: []int{0, 2}, between: func(t *testing.T, s *swept) { s.listed(t) }},
		"the Cluster is paused":        {list: []int{0, 2}, between: func(t *testing.T, s *swept) { s.pause(t, true) }},
		"the pool is gone": {list: []int{0, 2}, between: func(t *testing.T, s *swept) {
			testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
		}},
		"MachinePools cannot be listed": {list: []int{0, 2}, between: func(_ *testing.T, s *swept) {
			s.fails = func(kind string) error {
				if kind == "MachinePoolList" {
					return errFault
				}
				return nil
			}
		}},
		"the note is of another provider ID": {list: []int{0, 2}, before: func(t *testing.T, s *swept) {
			s.noteNodes(t, "node-1", AnnotationProviderID, "metal://9")
		}},
		"the note is of another record": {list: []int{0, 2}, before: func(t *testing.T, s *swept) {
			s.noteNodes(t, "node-1", AnnotationMachineUID, "former")
		}},
		"the note is of another pool": {list: []int{0, 2}, before: func(t *testing.T, s *swept) {
			s.noteNodes(t, "node-1", AnnotationMachine, namespace+"/"+work+"/other")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPooled(t, 3)
			p := s.following(t)
			if !row.unlisted {
				s.listed(t, all...)
			}
			for n := range 3 {
				s.joinsBy(t, n)
			}
			sweeps := s.poolSweeper(t)
			testkit.NoError(t, sweeps.run(t.Context()))
			if row.before != nil {
				row.before(t, s)
			}
			s.listed(t, row.list...)
			testkit.NoError(t, sweeps.run(t.Context()))
			if bound, held := s.states(t); len(bound) != 3 || len(held) != 0 {
				t.Fatalf("after one list: bound %q, held %q", bound, held)
			}
			if row.between != nil {
				row.between(t, s)
			}
			_ = sweeps.run(t.Context())
			if bound, held := s.states(t); len(bound) != 3-row.released || len(held) != row.held {
				t.Errorf("bound %q, held %q; want %d released, %d held", bound, held, row.released, row.held)
			}
			if got := testutil.ToFloat64(sweeps.released); got != float64(row.released) {
				t.Errorf("%v released by the metric", got)
			}
			if row.released == 1 {
				if err := p.renew(t, 1); err == nil {
					t.Error("the node of the machine that is gone renews")
				}
			}
		})
	}
}

// joinsBy makes the record of the nth machine, with a provider ID.
func (s *swept) joinsBy(t *testing.T, n int) {
	t.Helper()
	claim := membership.Claim{NodeName: fmt.Sprint("node-", n), Machine: identity(n),
		MachineUID: string(testUID("pool")) + "/" + string(identity(n)), ProviderID: fmt.Sprint("metal://", n)}
	r := s.registry()
	testkit.Must(r.Bind(t.Context(), testkit.Must(r.Reserve(t.Context(), claim, s.now().Add(time.Minute))), s.now().Add(24*time.Hour), nil))
}

// TestSweepPoolNotes: the sweep notes the pool, the slot, the Cluster's UID, and the provider ID that is listed.
func TestSweepPoolNotes(t *testing.T) {
	s := newPooled(t, 3)
	s.joinsBy(t, 0)
	s.joinsBy(t, 1)
	s.listed(t, 0)
	sweeps := s.poolSweeper(t)
	testkit.NoError(t, sweeps.run(t.Context()))
	for n, id := range []string{"metal://0", ""} {
		var o v1alpha1.AttestedNode
		testkit.NoError(t, s.nodes.Get(t.Context(), client.ObjectKey{Name: fmt.Sprint("node-", n)}, &o))
		want := map[string]string{AnnotationMachine: "fleet/work/pool", AnnotationMachineUID: o.Spec.MachineUID,
			AnnotationClusterUID: "uid-of-work"}
		if id != "" {
			want[AnnotationProviderID] = id
		}
		if fmt.Sprint(o.Annotations) != fmt.Sprint(want) {
			t.Errorf("node-%d: %v, want %v", n, o.Annotations, want)
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
}
