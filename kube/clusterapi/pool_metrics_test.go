package clusterapi

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// TestPoolSlotsMetric counts the slots of a pool that is full, grows, and is deleted, and of no other
// cluster's.
func TestPoolSlotsMetric(t *testing.T) {
	s := newPooled(t, 2)
	p := s.process(t)
	p.slots.Metrics = prometheus.NewRegistry()
	c := testkit.Must(newSlotCounts(p.Inventory))
	other := poolOf("v1beta2", "other", 7)
	other.SetLabels(nil)
	testkit.NoError(t, s.home.Create(t.Context(), other))
	check := func(state string, want ...string) {
		t.Helper()
		c.look(t.Context())
		text := ""
		for _, line := range want {
			text += "nodeattest_cluster_api_pool_slots" + line + "\n"
		}
		if text != "" {
			text = "# HELP nodeattest_cluster_api_pool_slots " + `Slots of a MachinePool by state: "held" by a node's record, until its last certificate has ended; "free".` + "\n# TYPE nodeattest_cluster_api_pool_slots gauge\n" + text
		}
		if err := testutil.CollectAndCompare(c.gauge, strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
	check("empty", `{pool="pool",state="free"} 2`, `{pool="pool",state="held"} 0`)
	for n := range 2 {
		testkit.NoError(t, p.join(t, n))
	}
	check("full", `{pool="pool",state="free"} 0`, `{pool="pool",state="held"} 2`)
	s.scale(t, 1)
	check("scaled down", `{pool="pool",state="free"} 0`, `{pool="pool",state="held"} 2`)
	p.nodesList.fails = errFault
	check("not counted")
	if !strings.Contains(c.last, errFault.Error()) {
		t.Errorf("reported: %q", c.last)
	}
	p.nodesList.fails = nil
	s.change(t, poolOf("v1beta2", "pool", 0), func(o client.Object) { unstructured.RemoveNestedField(content(o), "spec", "replicas") })
	check("no replicas")
	testkit.NoError(t, s.home.Delete(t.Context(), poolOf("v1beta2", "pool", 0)))
	check("gone")
	if c.last != "" {
		t.Errorf("reported: %q", c.last)
	}
}
