package bootstrap

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/requests"
	"github.com/nodeattest/nodeattest/refusal"
)

// A reporter reports the objects that a controller leaves as they are, and counts its writes.
type reporter struct {
	events  events.EventRecorder
	refused prometheus.Gauge
	writes  *prometheus.CounterVec
	said    map[string]string // why an object is refused, by its name
}

func newReporter(controller string, recorder events.EventRecorder, registry prometheus.Registerer) (*reporter, error) {
	r := &reporter{events: recorder,
		refused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "nodeattest_bootstrap_refused",
			Help: "How many objects a controller leaves as they are: Secrets of bootstrap tokens that it cannot read, or cluster-info.",
		}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nodeattest_bootstrap_writes_total",
			Help: "Writes of cluster-info and deletions of Secrets of bootstrap tokens, by result: done, conflict, or failed.",
		}, []string{"result"}),
	}
	registry = prometheus.WrapRegistererWith(prometheus.Labels{"controller": controller}, registry)
	for _, c := range []prometheus.Collector{r.refused, r.writes} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// A refused object is left as it is.
type refused struct {
	object client.Object
	err    error
}

// report counts the refused objects, logs them and makes Events about them: one for each reason.
func (r *reporter) report(ctx context.Context, all ...refused) {
	said := map[string]string{}
	for _, one := range all {
		name, why := one.object.GetName(), one.err.Error()
		said[name] = why
		if r.said[name] == why {
			continue
		}
		log.FromContext(ctx).Error(one.err, "object left as it is", "namespace", one.object.GetNamespace(), "object", name)
		reason := "Refused" // a series of Events has one reason, and its first one's note
		if e, ok := errors.AsType[*refusal.Error](one.err); ok {
			reason = e.Reason()
		}
		r.events.Eventf(one.object, nil, corev1.EventTypeWarning, reason, "Reconcile", "%s", requests.Note(why))
	}
	r.said = said
	r.refused.Set(float64(len(said)))
}

// leave reports one refused object, and has its controller look again after a while; 0: after a change.
func (r *reporter) leave(ctx context.Context, object client.Object, why error, again time.Duration) (reconcile.Result, error) {
	r.report(ctx, refused{object, why})
	return reconcile.Result{RequeueAfter: again}, nil
}

// refusedSecrets are the refused ones of some Secrets.
func refusedSecrets(refusals []bootstraptoken.Refusal, objects []*bootstraptoken.Object) []refused {
	uids := make(map[string]string, len(objects))
	for _, o := range objects {
		uids[o.Name] = o.UID
	}
	all := make([]refused, 0, len(refusals))
	for _, one := range refusals {
		s := new(corev1.Secret)
		s.Namespace, s.Name, s.UID = bootstraptoken.Namespace, one.Name, types.UID(uids[one.Name])
		all = append(all, refused{s, one.Err})
	}
	return all
}
