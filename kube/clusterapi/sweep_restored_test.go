package clusterapi

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestSweepRestored restores a management cluster from a backup that is older than half of its Machines: with the
// UIDs that they had, or with others, as a backup of objects has it. Nothing is released, whatever the number
// of sweeps and of controllers, and the operator finds the nodes whose Machines are missing marked.
func TestSweepRestored(t *testing.T) {
	const machines = 20
	for name, uid := range map[string]func(string) types.UID{
		"the same UIDs": testUID,
		"other UIDs":    func(name string) types.UID { return "restored-" + testUID(name) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t, machines)
			testkit.NoError(t, s.sweeper(t).run(t.Context()))
			s.restore(t, machines/2, uid)
			sweepers := []*sweep{s.sweeper(t), s.sweeper(t)}
			for range 5 {
				for _, one := range sweepers {
					testkit.NoError(t, one.run(t.Context()))
				}
			}
			if bound, held := s.states(t); len(bound) != machines || len(held) != machines/2 {
				t.Errorf("%d bound, %d held: %q", len(bound), len(held), held)
			}
			replaced := 0.0
			if uid("") != testUID("") {
				replaced = machines / 2
			}
			for state, want := range map[string]float64{"held": machines / 2, "missing": 0, "replaced": replaced, "there": machines/2 - replaced} {
				if got := testutil.ToFloat64(sweepers[0].records.WithLabelValues(state)); got != want {
					t.Errorf("%v %s by the metric, want %v", got, state, want)
				}
			}
			for n := machines / 2; n < machines; n++ { // a newer backup has them
				s.create(t, fmt.Sprint("machine-", n))
			}
			testkit.NoError(t, sweepers[0].run(t.Context()))
			if bound, held := s.states(t); len(bound) != machines || len(held) != 0 {
				t.Errorf("once they are back: %d bound, held: %q", len(bound), held)
			}
		})
	}
}

// restore has the management cluster have the first Machines alone, and a Cluster with a UID of that backup.
func (s *swept) restore(t *testing.T, machines int, uid func(string) types.UID) {
	t.Helper()
	all := new(unstructured.UnstructuredList)
	all.SetGroupVersionKind(machineOf("v1beta2", "").GroupVersionKind())
	testkit.NoError(t, s.home.List(t.Context(), all))
	for n := range all.Items {
		s.remove(t, all.Items[n].GetName())
	}
	testkit.NoError(t, s.home.Delete(t.Context(), clusterOf("v1beta2", nil)))
	made := []client.Object{clusterOf("v1beta2", nil)}
	for n := range machines {
		made = append(made, machineOf("v1beta2", fmt.Sprint("machine-", n)))
	}
	for _, o := range made {
		o.SetUID(uid(o.GetName()))
		testkit.NoError(t, s.home.Create(t.Context(), o))
	}
}
