package controlplane

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/oid"
)

const (
	// compareInterval is how often the provider IDs of records and Nodes are compared.
	compareInterval = 10 * time.Second
	// maxNodesRead is how many Nodes are read at most for one comparison. The rest waits for the
	// next one.
	maxNodesRead = 200
)

// The reasons in a comparer's Events.
const (
	reasonDiffers = "ProviderIDDiffers"
	reasonAgrees  = "ProviderIDAgrees"
)

// comparer compares the provider IDs of the records with those of the Nodes, for the operator: it
// denies nothing. A record without one, and a Node that has none yet, differ from
// nothing. It is a manager.Runnable, of the leader.
//
// The API server refuses to change the provider ID of a Node that has one. So each Node is read until
// it has one, and a difference begins and ends with a Node or by an operator's change of a record: a
// node cannot have Events made by going back and forth.
type comparer struct {
	cache, live client.Reader
	events      events.EventRecorder
	gauge       prometheus.Gauge
	most        int                   // maxNodesRead
	nodes       map[string]nodeID     // by node name
	differ      map[string]difference // by node name; these were told
}

// nodeID is what is known of the provider ID of a Node: "" in that version.
type nodeID struct {
	uid     types.UID
	version string
	id      string
}

// difference is a record, its provider ID and the Node's.
type difference struct {
	record         types.UID
	recorded, node string
}

// errLater: another comparison reads the Node.
var errLater = errors.New("enough Nodes were read")

// newComparer makes one that registers its gauge. cache has AttestedNodes and the names of Nodes.
func newComparer(cache, live client.Reader, recorder events.EventRecorder, r prometheus.Registerer) (*comparer, error) {
	c := &comparer{cache: cache, live: live, events: recorder, most: maxNodesRead, nodes: map[string]nodeID{}, differ: map[string]difference{}, gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "nodeattest_provider_ids_differ",
		Help: "Nodes whose spec.providerID is not the provider ID of their AttestedNode.",
	})}
	return c, r.Register(c.gauge)
}

// Start compares until ctx ends.
func (c *comparer) Start(ctx context.Context) error { //goroutine: the API server's client alone
	tick := time.NewTicker(compareInterval)
	defer tick.Stop()
	for {
		if err := c.compare(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "the provider IDs of records and Nodes were not all compared")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// compare compares once, and tells what has changed since the last time. It goes on after a Node that
// cannot be read, of which what was known before counts, and returns the last error.
func (c *comparer) compare(ctx context.Context) (failed error) {
	var records v1alpha1.AttestedNodeList
	if err := c.cache.List(ctx, &records, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	before, nodes, reads := c.differ, make(map[string]nodeID, len(records.Items)), 0
	c.differ = map[string]difference{}
	for i := range records.Items { // in no order
		record := &records.Items[i]
		if record.Spec.State != v1alpha1.NodeBound || record.Spec.ProviderID == "" {
			continue
		}
		known, exists, err := c.node(ctx, record.Name, &reads)
		switch {
		case err != nil:
			if !errors.Is(err, errLater) {
				failed = err
			}
			nodes[record.Name] = c.nodes[record.Name]
			if told, ok := before[record.Name]; ok {
				c.differ[record.Name] = told
			}
			continue
		case !exists:
			continue
		}
		nodes[record.Name] = known
		if same, _, _ := oid.SameProviderID(known.id, record.Spec.ProviderID); known.id == "" || same {
			continue
		}
		now := difference{record.UID, record.Spec.ProviderID, known.id}
		if c.differ[record.Name] = now; before[record.Name] != now {
			c.tell(ctx, record.Name, now, corev1.EventTypeWarning, reasonDiffers, "the Node has ")
		}
	}
	for name, was := range before {
		if _, still := c.differ[name]; !still {
			c.tell(ctx, name, was, corev1.EventTypeNormal, reasonAgrees, "the Node no longer has ")
		}
	}
	c.nodes = nodes
	c.gauge.Set(float64(len(c.differ)))
	return failed
}

// node finds the provider ID of a Node, if there is one. It reads the Node only while it has none.
func (c *comparer) node(ctx context.Context, name string, reads *int) (known nodeID, exists bool, err error) {
	cached := new(metav1.PartialObjectMetadata)
	cached.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := c.cache.Get(ctx, client.ObjectKey{Name: name}, cached); err != nil {
		return known, false, client.IgnoreNotFound(err)
	}
	known = c.nodes[name]
	if known.uid == cached.UID && (known.id != "" || known.version == cached.ResourceVersion) {
		return known, true, nil
	}
	if *reads++; *reads > c.most {
		return known, false, errLater
	}
	var live corev1.Node
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, &live); err != nil {
		return known, false, client.IgnoreNotFound(err)
	}
	id := live.Spec.ProviderID // of any length
	return nodeID{live.UID, cached.ResourceVersion, strings.Clone(id[:min(len(id), oid.MaxProviderIDSize+1)])}, true, nil
}

// tell tells of the begin or the end of a difference, in the log and by an Event about the record.
func (c *comparer) tell(ctx context.Context, nodeName string, d difference, kind, reason, what string) {
	_, node, recorded := oid.SameProviderID(d.node, d.recorded)
	note := what + "provider ID " + node + " where its record has " + recorded
	log.FromContext(ctx).Info(note, "node", nodeName, "reason", reason)
	about := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: d.record}}
	about.SetGroupVersionKind(v1alpha1.GroupVersion().WithKind("AttestedNode"))
	c.events.Eventf(about, nil, kind, reason, "Compare", "%s", requests.Note(note))
}
