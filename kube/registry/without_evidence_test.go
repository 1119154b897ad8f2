package registry_test

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// TestWithoutEvidence has records of nodes without evidence claim the identities of a node that has
// attested, and its pointers lead to them: the node renews, gets its pointers back, and Repair
// prefers it. A node without evidence keeps its own machine.
func TestWithoutEvidence(t *testing.T) {
	for name, row := range map[string]struct {
		thief  v1alpha1.AttestedNodeSpec
		repair bool // before the node comes back
	}{
		"its Machine UID":             {thief: v1alpha1.AttestedNodeSpec{Machine: "insecure:zzz", MachineUID: "uid-node-1"}},
		"its Machine UID, repaired":   {thief: v1alpha1.AttestedNodeSpec{Machine: "insecure:zzz", MachineUID: "uid-node-1"}, repair: true},
		"its machine":                 {thief: v1alpha1.AttestedNodeSpec{Machine: "test:1"}},
		"its machine, repaired":       {thief: v1alpha1.AttestedNodeSpec{Machine: "test:1"}, repair: true},
		"both, by a change":           {thief: v1alpha1.AttestedNodeSpec{Machine: "insecure:zzz", Pending: &v1alpha1.PendingChange{Machine: "test:1", MachineUID: "uid-node-1"}}},
		"both, by a change, repaired": {thief: v1alpha1.AttestedNodeSpec{Machine: "insecure:zzz", Pending: &v1alpha1.PendingChange{Machine: "test:1", MachineUID: "uid-node-1"}}, repair: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			honest, end := claimOf("node-1", "1"), metav1.NewTime(w.clock.now().Add(24*time.Hour))
			w.bindFor(honest, 24*time.Hour)
			s := row.thief
			s.Scope, s.State, s.LastEnd = "insecure document", v1alpha1.NodeBound, &end
			if s.Pending != nil {
				s.Pending.Deadline = end
			}
			w.create(&v1alpha1.AttestedNode{ObjectMeta: metav1.ObjectMeta{Name: "zzz"}, Spec: s})
			w.leads("zzz")
			if row.repair {
				if _, err := w.Repair(t.Context()); err != nil {
					t.Error(err)
				}
				w.checkLeads("node-1")
			}
			w.bindFor(honest, 25*time.Hour)
			w.checkLeads("node-1")
			if _, err := w.Reserve(t.Context(), claimOf("node-2", "1"), w.clock.now().Add(time.Minute)); !errors.Is(err, attest.Check("registry-machine")) {
				t.Errorf("another name for the machine: %v", err)
			}
		})
	}
	t.Run("its own machine", func(t *testing.T) {
		w := newWorld(t)
		without := newScopedRegistry(t, membership.Scope{Cluster: "cluster-1", Provider: "insecure", Road: attest.RoadDocument}, w.store, w.clock.now)
		own := membership.Claim{NodeName: "node-4", Machine: "insecure:node-4"}
		seen, err := without.Reserve(t.Context(), own, w.clock.now().Add(time.Minute))
		if err == nil {
			_, err = without.Bind(t.Context(), seen, w.clock.now().Add(time.Hour), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if record, err := without.LookupMachine(t.Context(), own.Machine); err != nil || record == nil || record.NodeName != "node-4" {
			t.Errorf("got %+v, %v", record, err)
		}
		if _, err := w.Reserve(t.Context(), membership.Claim{NodeName: "node-5", Machine: own.Machine}, w.clock.now().Add(time.Minute)); !errors.Is(err, membership.CheckRegistryScope) {
			t.Errorf("its machine under another name: %v", err)
		}
	})
}

func (w *world) create(o client.Object) {
	w.Helper()
	testkit.MustDo(w.store.Create(w.Context(), o))
}

// leads has the pointers of node-1 lead to another node.
func (w *world) leads(nodeName string) {
	w.Helper()
	machine, uid := w.pointersOfNode1()
	machine.Spec.NodeName, uid.Spec.NodeName = nodeName, nodeName
	for _, o := range []client.Object{machine, uid} {
		testkit.MustDo(w.store.Update(w.Context(), o))
	}
}

func (w *world) checkLeads(nodeName string) {
	w.Helper()
	if machine, uid := w.pointersOfNode1(); machine.Spec.NodeName != nodeName || uid.Spec.NodeName != nodeName {
		w.Errorf("the pointers lead to %s and %s, want %s", machine.Spec.NodeName, uid.Spec.NodeName, nodeName)
	}
}

func (w *world) pointersOfNode1() (*v1alpha1.AttestedMachine, *v1alpha1.AttestedMachineUID) {
	w.Helper()
	machine, uid := new(v1alpha1.AttestedMachine), new(v1alpha1.AttestedMachineUID)
	testkit.MustDo(w.store.Get(w.Context(), client.ObjectKey{Name: v1alpha1.PointerName("test:1")}, machine))
	testkit.MustDo(w.store.Get(w.Context(), client.ObjectKey{Name: v1alpha1.PointerName("uid-node-1")}, uid))
	return machine, uid
}
