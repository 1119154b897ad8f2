package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
)

const (
	// sweepInterval is how often records are held against the Machines.
	sweepInterval = time.Minute
	// sweepShare is the share of the records that one run may release: one of so many.
	sweepShare = 10
	// deleteForMove is clusterctl's annotation of an object that it deletes because it has moved it to
	// another management cluster.
	deleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
)

// sweep is the manager's runnable that has records follow Machines: of the leader. Another process's may
// run at the same time for a moment.
type sweep struct {
	*Inventory
	now func() time.Time

	// The Machines that were missing in the last run; empty after a run that did nothing.
	clusterUID types.UID            // of the Cluster
	missing    map[string]time.Time // since when Machines of records are missing, by their UIDs
	// moved are the UIDs of Machines that were seen with deleteForMove.
	moved map[string]bool

	records            *prometheus.GaugeVec
	swept              prometheus.Gauge
	released           prometheus.Counter
	reported, lastHeld string // in the log already
}

// newSweep makes a sweep, and registers its metrics.
func newSweep(i *Inventory) (*sweep, error) {
	s := &sweep{Inventory: i, now: time.Now, moved: map[string]bool{},
		records: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nodeattest_cluster_api_records",
			Help: `AttestedNodes by their Machine, or their machine of a MachinePool: "there"; "missing", to be released; "held", missing and left to kubectl nodeattest release --gone; "replaced" by another Machine or pool of its name, to be adopted; "moved" by clusterctl.`}, []string{"machine"}),
		swept: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nodeattest_cluster_api_swept_seconds",
			Help: "When AttestedNodes were last held against all Machines, in seconds since 1970."}),
		released: prometheus.NewCounter(prometheus.CounterOpts{Name: "nodeattest_cluster_api_released_total",
			Help: "AttestedNodes released because their Machine is gone."}),
	}
	return s, errors.Join(i.follow.Metrics.Register(s.records), i.follow.Metrics.Register(s.swept), i.follow.Metrics.Register(s.released))
}

// Start sweeps until ctx ends.
func (s *sweep) Start(ctx context.Context) error { //goroutine: objects that Cluster API and its providers wrote
	wait.UntilWithContext(ctx, s.look, sweepInterval) //goroutine: in this one; objects that Cluster API and its providers wrote
	return nil
}

// look sweeps once, and reports each change of what keeps it from sweeping.
func (s *sweep) look(ctx context.Context) {
	why := ""
	if err := s.run(ctx); err != nil {
		why = err.Error()
	}
	if ctx.Err() != nil || why == s.reported {
		return
	}
	s.reported = why
	logger := log.FromContext(ctx).WithValues("cluster", s.namespace+"/"+s.cluster)
	if why != "" {
		logger.Info("AttestedNodes not held against all Machines; the next try is in a minute", "why", why)
		return
	}
	logger.Info("AttestedNodes are held against the Machines again")
}

// run sweeps once. After an error before the records were read, the next run begins anew: it releases
// nothing.
func (s *sweep) run(ctx context.Context) error {
	missing, last := s.missing, s.clusterUID
	s.missing, s.clusterUID = nil, ""
	machines, err := s.machines(ctx)
	if err != nil {
		return fmt.Errorf("list of Machines: %w", err)
	}
	pools, err := s.listPools(ctx)
	if err != nil {
		return fmt.Errorf("list of MachinePools: %w", err)
	}
	// After the lists: while the Cluster is not paused, clusterctl move has deleted none of its Machines.
	uid, err := s.unpaused(ctx)
	if err != nil {
		return err
	}
	var nodes v1alpha1.AttestedNodeList
	if err := s.follow.Nodes.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list of AttestedNodes: %w", err)
	}
	if uid != last {
		missing = nil
	}
	s.missing, s.clusterUID = map[string]time.Time{}, uid
	failed := s.compare(ctx, &comparison{found: machines, pools: pools, before: missing,
		counts: map[string]int{"there": 0, "missing": 0, "replaced": 0, "moved": 0}}, nodes.Items)
	s.swept.Set(float64(s.now().Unix()))
	return failed
}

// found are the Machines of a namespace.
type found struct {
	byUID  map[string]*unstructured.Unstructured // of every Cluster
	byName map[string]*unstructured.Unstructured // of the Cluster
}

// machines reads all Machines, and remembers each one that is being moved. A Machine that has lost its label
// is there all the same.
func (s *sweep) machines(ctx context.Context) (*found, error) {
	f := &found{map[string]*unstructured.Unstructured{}, map[string]*unstructured.Unstructured{}}
	err := s.each(ctx, s.kinds.machine, func(m *unstructured.Unstructured) {
		uid := string(m.GetUID())
		f.byUID[uid] = m
		if text(m.Object, "spec", "clusterName") == s.cluster {
			f.byName[m.GetName()] = m
		}
		if _, moves := m.GetAnnotations()[deleteForMove]; moves {
			s.moved[uid] = true
		}
	})
	return f, err
}

// unpaused returns the UID of the Cluster as it is now, or an error that says why records have to stay.
func (s *sweep) unpaused(ctx context.Context) (types.UID, error) {
	c, err := s.clusterNow(ctx)
	if err != nil {
		return "", err
	}
	of := func(what string) error { return fmt.Errorf("cluster %s/%s %s", s.namespace, s.cluster, what) }
	if c == nil {
		return "", of("is missing in the management cluster")
	}
	stays, err := paused(c)
	switch {
	case err != nil:
		return "", err
	case stays:
		return "", of("is paused")
	case c.GetDeletionTimestamp() != nil:
		return "", of("is being deleted")
	case c.GetUID() == "":
		return "", of("has no UID")
	}
	return c.GetUID(), nil
}

// lapsed is the record of a node whose Machine is missing.
type lapsed struct {
	object *v1alpha1.AttestedNode
	record *membership.Record
	since  time.Time
}

// comparison is one run's.
type comparison struct {
	*found
	pools  *foundPools
	before map[string]time.Time // since when Machines were missing in the last run
	counts map[string]int       // of records, by the metric's label
	due    []lapsed
	moved  []lapsed // of MachinePools that were moved
	failed error
}

// note keeps the last error that is not of a write by another process that was first.
func (c *comparison) note(err error) {
	if err != nil && !overtaken(err) {
		c.failed = err
	}
}

// overtaken reports whether another process has changed an object first.
func overtaken(err error) bool {
	return errors.Is(err, membership.CheckRegistryConflict) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// compare holds each record against the Machines and MachinePools, releases the ones that are due, and adopts
// the records of pools that were moved. It goes on after a record that fails, and returns the last error.
func (s *sweep) compare(ctx context.Context, c *comparison, nodes []v1alpha1.AttestedNode) error {
	for n := range nodes {
		record, err := registry.AttestedRecord(&nodes[n])
		switch {
		case err != nil:
			c.failed = err
		case record == nil || record.MachineUID == "":
		case record.State == membership.StateBound:
			s.bound(ctx, c, &nodes[n], record)
		case record.State == membership.StateResting:
			c.note(s.takeBack(ctx, c.found, &nodes[n], record))
		}
	}
	all, held := 0, 0
	for _, n := range c.counts {
		all += n
	}
	if len(c.due) > max(1, all/sweepShare) {
		held = len(c.due)
		c.note(s.hold(ctx, c.due, all))
	} else {
		s.lastHeld = ""
		c.note(s.release(ctx, c.due))
	}
	s.adoptSlots(ctx, c)
	c.counts["held"], c.counts["missing"] = held, c.counts["missing"]-held
	for state, n := range c.counts {
		s.records.WithLabelValues(state).Set(float64(n))
	}
	return c.failed
}

// bound compares a bound record.
func (s *sweep) bound(ctx context.Context, c *comparison, object *v1alpha1.AttestedNode, record *membership.Record) {
	if pool, ok := slotOf(record.MachineUID); ok {
		s.boundSlot(ctx, c, pool, object, record)
		return
	}
	if m := c.byUID[record.MachineUID]; m != nil {
		if s.owns(m) {
			c.counts["there"]++
			c.note(s.annotate(ctx, object, s.origin(m), record.MachineUID))
		}
		return
	}
	of, known := originOf(object, record)
	switch {
	case !known || of.namespace != s.namespace || of.cluster != s.cluster:
	case s.moved[record.MachineUID]:
		c.counts["moved"]++
		c.note(s.note(ctx, object, map[string]string{AnnotationGone: ""}))
	case c.byName[of.name] != nil:
		c.counts["replaced"]++
		if m := c.byName[of.name]; s.names(m, record.Machine) {
			c.note(s.adopt(ctx, record, string(m.GetUID())))
			return
		}
		c.note(s.note(ctx, object, map[string]string{AnnotationGone: ""}))
	default:
		s.miss(c, object, record)
	}
}

// miss counts a record whose Machine is missing. It is due if the Machine was missing in the last run.
func (s *sweep) miss(c *comparison, object *v1alpha1.AttestedNode, record *membership.Record) {
	c.counts["missing"]++
	since, before := c.before[record.MachineUID]
	if !before {
		since = s.now()
	} else {
		c.due = append(c.due, lapsed{object, record, since})
	}
	s.missing[record.MachineUID] = since
}

// names reports whether a Machine of the Cluster names a machine as its own.
func (s *sweep) names(m *unstructured.Unstructured, machine attest.Identity) bool {
	return s.owns(m) && m.GetDeletionTimestamp() == nil && m.GetAnnotations()[AnnotationIdentity] == string(machine)
}

// takeBack adopts a resting record whose machine is back as another Machine of the same name, which is no
// MachinePool.
func (s *sweep) takeBack(ctx context.Context, machines *found, object *v1alpha1.AttestedNode, record *membership.Record) error {
	of, known := originOf(object, record)
	m := machines.byName[of.name]
	if _, slot := slotOf(record.MachineUID); slot || !known || of != (origin{s.namespace, s.cluster, of.name}) || m == nil || string(m.GetUID()) == record.MachineUID || !s.names(m, record.Machine) || !record.Live(s.now()) {
		return nil
	}
	return s.adopt(ctx, record, string(m.GetUID()))
}

// annotate notes the Machine of a record, which is there.
func (s *sweep) annotate(ctx context.Context, object *v1alpha1.AttestedNode, of origin, uid string) error {
	return s.note(ctx, object, map[string]string{AnnotationMachine: of.String(), AnnotationMachineUID: uid, AnnotationGone: ""})
}

// note changes annotations of a record, over the version that was read; "" removes one.
func (s *sweep) note(ctx context.Context, object *v1alpha1.AttestedNode, want map[string]string) error {
	notes, changed := map[string]string{}, false
	maps.Copy(notes, object.GetAnnotations())
	for k, v := range want {
		if notes[k] == v {
			continue
		}
		changed = true
		if notes[k] = v; v == "" {
			delete(notes, k)
		}
	}
	if !changed {
		return nil
	}
	o := object.DeepCopy()
	o.SetAnnotations(notes)
	return s.follow.Nodes.Update(ctx, o)
}

// release releases the records of Machines that are gone.
func (s *sweep) release(ctx context.Context, due []lapsed) (failed error) {
	for _, r := range due {
		released, err := s.follow.Records.Release(ctx, r.record.NodeName, r.record.MachineUID)
		if err != nil {
			failed = fmt.Errorf("node %s not released: %w", r.record.NodeName, err)
			continue
		}
		if released {
			s.released.Inc()
			log.FromContext(ctx).Info("released the node of a Machine that is gone; its name rests until its last certificate has ended", "node", r.record.NodeName,
				"machine", r.object.GetAnnotations()[AnnotationMachine], "machineUID", r.record.MachineUID, "missingSince", r.since.UTC().Format(time.RFC3339),
				"lastEnd", r.record.LastEnd.UTC().Format(time.RFC3339))
		}
	}
	return failed
}

// hold leaves records to an operator, with the time since when their Machines are missing.
func (s *sweep) hold(ctx context.Context, due []lapsed, all int) (failed error) {
	if held := fmt.Sprint(len(due), " of ", all); held != s.lastHeld {
		s.lastHeld = held
		log.FromContext(ctx).Info("more Machines are gone than one run releases nodes for, so none is released: if these machines are gone, run kubectl nodeattest release --gone",
			"cluster", s.namespace+"/"+s.cluster, "gone", len(due), "nodes", all)
	}
	for _, r := range due {
		if r.object.GetAnnotations()[AnnotationGone] != "" {
			continue
		}
		if err := s.note(ctx, r.object, map[string]string{AnnotationGone: r.since.UTC().Format(time.RFC3339)}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			failed = err
		}
	}
	return failed
}
