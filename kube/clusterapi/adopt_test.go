package clusterapi

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// another makes a Machine of a name with another UID, and deletes the one that had it.
func (s *swept) another(t *testing.T, name string, change ...func(client.Object)) {
	t.Helper()
	s.remove(t, name)
	m := machineOf("v1beta2", name)
	m.SetUID("another")
	for _, f := range change {
		f(m)
	}
	testkit.NoError(t, s.home.Create(t.Context(), m))
}

// inventory is that of a controller whose records follow Machines.
func (s *swept) inventory(t *testing.T) *Inventory {
	t.Helper()
	all := registry.Several{s.registry()}
	i := newInventory(t, "v1beta2", all, nil, nil)
	i.live, i.cached = s, s.home
	i.follow = &Follow{Records: all, Nodes: s.nodes, Metrics: prometheus.NewRegistry()}
	return i
}

// TestAdopt has the machine of node-1 ask with the token of a Machine that replaced machine-1.
func TestAdopt(t *testing.T) {
	for name, row := range map[string]struct {
		identity attest.Identity // identity(1) if ""
		change   func(t *testing.T, s *swept, i *Inventory)
		adopted  bool
		atHello  bool // the next authorizer is asked
		retry    bool // at both
		refused  bool // at both, before any authorizer is asked
		resting  bool // in the end
	}{
		"the same machine": {adopted: true},
		"the same machine, which the Machine names": {adopted: true, change: func(t *testing.T, s *swept, _ *Inventory) {
			s.change(t, machineOf("v1beta2", "machine-1"), withNote(AnnotationIdentity, string(identity(1))))
		}},
		"the same machine, whose name rests": {adopted: true, change: func(t *testing.T, s *swept, _ *Inventory) {
			testkit.Must(s.registry().Release(t.Context(), "node-1", string(testUID("machine-1"))))
		}},
		"another machine": {identity: identity(7), atHello: true},
		"another machine, while the name rests": {identity: identity(7), atHello: true, resting: true, change: func(t *testing.T, s *swept, _ *Inventory) {
			testkit.Must(s.registry().Release(t.Context(), "node-1", string(testUID("machine-1"))))
		}},
		"another machine than the Machine names": {refused: true, change: func(t *testing.T, s *swept, _ *Inventory) {
			s.change(t, machineOf("v1beta2", "machine-1"), withNote(AnnotationIdentity, string(identity(7))))
		}},
		"a record that was never noted": {atHello: true, change: func(t *testing.T, s *swept, _ *Inventory) { s.noteNodes(t, "node-1", AnnotationMachine, "") }},
		"another Cluster's record": {atHello: true, change: func(t *testing.T, s *swept, _ *Inventory) {
			s.noteNodes(t, "node-1", AnnotationMachine, namespace+"/other/machine-1")
		}},
		"the record of another Machine": {atHello: true, change: func(t *testing.T, s *swept, _ *Inventory) {
			s.noteNodes(t, "node-1", AnnotationMachine, namespace+"/"+work+"/machine-0")
		}},
		"records do not follow": {atHello: true, change: func(_ *testing.T, _ *swept, i *Inventory) { i.follow = nil }},
		"the Machine is deleted meanwhile": {retry: true, change: func(_ *testing.T, s *swept, i *Inventory) {
			i.live = gets{s, func(m *unstructured.Unstructured) { deleted(m) }}
		}},
		"the Machine is replaced once more": {retry: true, change: func(_ *testing.T, s *swept, i *Inventory) {
			i.live = gets{s, func(m *unstructured.Unstructured) { m.SetUID("a third one") }}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, 2)
			testkit.NoError(t, s.sweeper(t).run(t.Context()))
			s.another(t, "machine-1")
			config := configOf("v1beta2", "machine-1", "abcdef")
			owner := ownedBy("v1beta2", "Machine", "machine-1")
			owner[0].UID = "another"
			config.SetOwnerReferences(owner)
			testkit.NoError(t, s.home.Create(t.Context(), config))
			i := s.inventory(t)
			policy := &csr.Policy{SignerNames: []string{csr.SignerClientTPM}, ClusterIDs: []string{"a-cluster"}, Machines: func(context.Context, csr.Question) (*csr.Machine, error) {
				m := object(i.kinds.machine)
				testkit.NoError(t, s.home.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "machine-1"}, m))
				return machine(m)
			}}
			if row.change != nil {
				row.change(t, s, i)
			}
			request := question(t, bootstrap, "").Request
			request.Spec.SignerName, request.Spec.Usages = csr.SignerClientTPM, csr.PurposeClient.Usages(false)
			checked := testkit.Must(policy.Check(t.Context(), request.Parsed()))
			if row.identity == "" {
				row.identity = identity(1)
			}
			for _, stage := range []attest.Stage{attest.StageHello, attest.StageAnswer} {
				asked, uid := false, ""
				r := attest.NewResult(stage, checked)
				r.Provider, r.Road, r.Machine = "tpm", attest.RoadEK, row.identity
				err := attest.AskMembership(t.Context(), i.Authorizer(asks(func(r *attest.Result) {
					asked, uid = true, testkit.Must(s.registry().Lookup(t.Context(), "node-1")).MachineUID
				})), r)
				if errors.Is(err, refusal.ErrRetry) != row.retry || errors.Is(err, attest.CheckMembership) != row.refused {
					t.Errorf("%v: %v", stage, err)
				}
				if want := !row.retry && !row.refused && (stage == attest.StageAnswer || row.atHello); asked != want {
					t.Errorf("%v: asked the next authorizer %t, want %t; %v", stage, asked, want, err)
				}
				if asked && (uid == "another") != row.adopted {
					t.Errorf("%v: asked while the record has Machine UID %s", stage, uid)
				}
			}
			record := testkit.Must(s.registry().Lookup(t.Context(), "node-1"))
			if (record.MachineUID == "another") != row.adopted || record.Machine != identity(1) || (record.State == membership.StateResting) != row.resting {
				t.Errorf("the record is %+v", record)
			}
		})
	}
}

// asks is an authorizer that admits all, and is asked at the hello too.
type asks func(r *attest.Result)

func (a asks) AuthorizeHello(_ context.Context, r *attest.Result) error {
	a(r)
	return nil
}

func (a asks) Authorize(_ context.Context, r *attest.Result) (*attest.Authorization, error) {
	a(r)
	return r.Admit("node-1"), nil
}

// gets reads Machines that have changed.
type gets struct {
	*swept
	change func(*unstructured.Unstructured)
}

func (g gets) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	err := g.swept.Get(ctx, key, into, options...)
	if m, ok := into.(*unstructured.Unstructured); ok && err == nil && m.GetKind() == "Machine" {
		g.change(m)
	}
	return err
}

// TestSuccessor has node-1 renew after its Machine was replaced by one of its name.
func TestSuccessor(t *testing.T) {
	serving := func(q csr.Question) csr.Question {
		q.Request.Spec.SignerName = csr.SignerKubeletServing
		return q
	}
	for name, row := range map[string]struct {
		change  func(t *testing.T, s *swept)
		serving bool
		err     error // nil: the Machine is found
	}{
		"a renewal":             {},
		"a serving certificate": {serving: true, err: refusal.ErrRetry},
		"a serving certificate of an adopted record": {serving: true, change: func(t *testing.T, s *swept) {
			record := testkit.Must(s.registry().Lookup(t.Context(), "node-1"))
			testkit.Must(s.registry().Adopt(t.Context(), record, "another"))
			testkit.NoError(t, s.sweeper(t).run(t.Context()))
		}},
		"no Machine has the name":      {err: csr.ErrNoMachine, change: func(t *testing.T, s *swept) { s.remove(t, "machine-1") }},
		"the Machine is being deleted": {err: csr.ErrNoMachine, change: func(t *testing.T, s *swept) { s.dying(t, "machine-1") }},
		"the Machine is of another Cluster": {err: csr.ErrNoMachine, change: func(t *testing.T, s *swept) {
			s.change(t, machineOf("v1beta2", "machine-1"), func(o client.Object) { o.SetLabels(nil) })
		}},
		"a record that was never noted": {err: csr.ErrNoMachine, change: func(t *testing.T, s *swept) { s.noteNodes(t, "node-1", AnnotationMachineUID, "") }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, 2)
			testkit.NoError(t, s.sweeper(t).run(t.Context()))
			s.another(t, "machine-1")
			if row.change != nil {
				row.change(t, s)
			}
			q := question(t, node, "")
			if row.serving {
				q = serving(q)
			}
			m, err := s.inventory(t).Machine(t.Context(), q)
			if !errors.Is(err, row.err) || row.err == nil && (m == nil || m.UID != "another") {
				t.Errorf("got %+v, %v; want %v", m, err, row.err)
			}
		})
	}
}

// dying marks a Machine as being deleted.
func (s *swept) dying(t *testing.T, name string) {
	t.Helper()
	s.change(t, machineOf("v1beta2", name), func(o client.Object) { o.SetFinalizers([]string{"machine.cluster.x-k8s.io"}) })
	m := machineOf("v1beta2", name)
	testkit.NoError(t, s.home.Delete(t.Context(), m))
}

// TestSweepLeavesReleased: the record of a Machine that is there, which an operator has released, goes on to
// rest.
func TestSweepLeavesReleased(t *testing.T) {
	s := newSwept(t, 2)
	s.change(t, machineOf("v1beta2", "machine-1"), withNote(AnnotationIdentity, string(identity(1))))
	sweeps := s.sweeper(t)
	testkit.NoError(t, sweeps.run(t.Context()))
	testkit.Must(s.registry().Release(t.Context(), "node-1", string(testUID("machine-1"))))
	testkit.NoError(t, sweeps.run(t.Context()))
	if record := testkit.Must(s.registry().Lookup(t.Context(), "node-1")); record.State != membership.StateResting {
		t.Errorf("the record is %+v", record)
	}
}

// TestSweepAdopts: the sweep adopts a record for a Machine that names the record's machine, and no other.
func TestSweepAdopts(t *testing.T) {
	for name, row := range map[string]struct {
		identity attest.Identity // that the Machine names
		released bool            // in between
		change   func(t *testing.T, s *swept)
		adopted  bool
	}{
		"the same machine":                      {identity: identity(1), adopted: true},
		"another machine":                       {identity: identity(7)},
		"the same machine, released in between": {released: true, identity: identity(1), adopted: true},
		"another machine, released in between":  {released: true, identity: identity(7)},
		"a note of another Cluster, released in between": {released: true, identity: identity(1), change: func(t *testing.T, s *swept) {
			s.noteNodes(t, "node-1", AnnotationMachine, namespace+"/other/machine-1")
		}},
		"no machine": {},
		"the Machine is being deleted": {identity: identity(1), change: func(t *testing.T, s *swept) {
			s.dying(t, "machine-1")
		}},
		"the Cluster is paused": {identity: identity(1), change: func(t *testing.T, s *swept) { s.pause(t, true) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, 3)
			sweeps := s.sweeper(t)
			testkit.NoError(t, sweeps.run(t.Context()))
			if row.released {
				s.remove(t, "machine-1")
				for range 2 {
					testkit.NoError(t, sweeps.run(t.Context()))
				}
				s.create(t, "machine-1")
			}
			s.another(t, "machine-1", withNote(AnnotationIdentity, string(row.identity)))
			if row.change != nil {
				row.change(t, s)
			}
			for range 3 {
				_ = sweeps.run(t.Context())
			}
			record := testkit.Must(s.registry().Lookup(t.Context(), "node-1"))
			if (record.MachineUID == "another") != row.adopted || (record.State == membership.StateBound) != (row.adopted || !row.released) {
				t.Errorf("the record is %+v", record)
			}
		})
	}
}
