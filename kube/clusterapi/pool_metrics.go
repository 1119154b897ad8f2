package clusterapi

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// slotsInterval is how often slots are counted for the metric.
const slotsInterval = time.Minute

// slotCounts is the manager's runnable that reports the slots of MachinePools: of the leader.
type slotCounts struct {
	*Inventory
	gauge *prometheus.GaugeVec
	last  string // in the log already
}

// newSlotCounts makes one, and registers its metric.
func newSlotCounts(i *Inventory) (*slotCounts, error) {
	c := &slotCounts{Inventory: i, gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nodeattest_cluster_api_pool_slots",
		Help: `Slots of a MachinePool by state: "held" by a node's record, until its last certificate has ended; "free".`}, []string{"pool", "state"})}
	return c, i.slots.Metrics.Register(c.gauge)
}

// Start counts until ctx ends.
func (c *slotCounts) Start(ctx context.Context) error { //goroutine: objects that Cluster API and its providers wrote
	wait.UntilWithContext(ctx, c.look, slotsInterval) //goroutine: in this one; objects that Cluster API and its providers wrote
	return nil
}

// look counts once, and reports each change of what keeps it from counting.
func (c *slotCounts) look(ctx context.Context) {
	why := ""
	if err := c.count(ctx); err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil || why == c.last {
		return
	}
	if c.last = why; why != "" {
		log.FromContext(ctx).Info("slots of MachinePools not counted for the metric; the next try is in a minute", "cluster", c.namespace+"/"+c.cluster, "why", why)
	}
}

// count sets the metric. A MachinePool that is gone is left out.
func (c *slotCounts) count(ctx context.Context) error {
	c.gauge.Reset()
	if c.kinds.pool.Empty() {
		return nil
	}
	all, err := c.slots.holds(ctx, "")
	if err != nil {
		return err
	}
	held := map[string]int{}
	for n := range all {
		pool, _ := slotOf(all[n].claim.MachineUID)
		held[string(pool)]++
	}
	var failed error
	err = c.each(ctx, c.kinds.pool, func(p *unstructured.Unstructured) {
		if !c.owns(p) {
			return
		}
		wanted, err := replicas(p)
		if err != nil {
			failed = err
			return
		}
		n := held[string(p.GetUID())]
		c.gauge.WithLabelValues(p.GetName(), "held").Set(float64(n))
		c.gauge.WithLabelValues(p.GetName(), "free").Set(float64(max(0, wanted-n)))
	})
	if err == nil {
		err = failed
	}
	return err
}
