package bootstrap

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// coalescing is how long changes are collected before the next look: many changes are one write.
	coalescing = 200 * time.Millisecond
	// conflictPause is how long after a lost write a controller looks again, if no event comes first.
	conflictPause = 2 * time.Second
	// maxWait is the longest wait for the end of a token: a clock that was set, or a machine that slept,
	// is noticed after an hour.
	maxWait = time.Hour
	// maxBackoff is the longest wait after errors.
	maxBackoff = time.Minute
)

// everything is the one request of a controller: it looks at all objects at once.
type everything struct{}

// Add adds the controllers that the settings name to a manager, whose cache has [CacheOptions].
func Add(m manager.Manager, s *Settings) error {
	for _, name := range s.Controllers {
		r, err := newReporter(name, m.GetEventRecorder(s.Account()), metrics.Registry)
		if err != nil {
			return err
		}
		switch name {
		case Signer:
			err = add(m, name, &signer{client: m.GetClient(), now: time.Now, reporter: r}, &corev1.Secret{}, &corev1.ConfigMap{})
		case Publisher:
			err = add(m, name, &publisher{client: m.GetClient(), of: s.Publisher, reporter: r}, &corev1.ConfigMap{})
		case Cleaner:
			err = add(m, name, &cleaner{client: m.GetClient(), now: time.Now, reporter: r}, &corev1.Secret{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A looker looks at all objects, and writes or deletes where one differs from its decision.
type looker interface {
	look(ctx context.Context, _ everything) (reconcile.Result, error)
}

// add has a manager call l once the watched objects have changed.
func add(m manager.Manager, name string, l looker, watched ...client.Object) error {
	b := builder.TypedControllerManagedBy[everything](m).Named("bootstrap-" + name).WithOptions(runtimecontroller.TypedOptions[everything]{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[everything](coalescing, maxBackoff),
		// An API server that does not answer at the start is reported by the readiness check.
		CacheSyncTimeout: 24 * time.Hour,
	})
	for _, o := range watched {
		b = b.Watches(o, changes{})
	}
	return b.Complete(reconcile.TypedFunc[everything](l.look))
}

// changes has a controller look soon after any change.
type changes struct{}

type queue = workqueue.TypedRateLimitingInterface[everything]

func (changes) Create(_ context.Context, _ event.CreateEvent, q queue) {
	q.AddAfter(everything{}, coalescing)
}

func (changes) Update(_ context.Context, _ event.UpdateEvent, q queue) {
	q.AddAfter(everything{}, coalescing)
}

func (changes) Delete(_ context.Context, _ event.DeleteEvent, q queue) {
	q.AddAfter(everything{}, coalescing)
}

func (changes) Generic(context.Context, event.GenericEvent, queue) {}

// at has a controller look again at a time; zero: only after a change.
func at(next, now time.Time) reconcile.Result {
	if next.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: min(max(next.Sub(now), time.Millisecond), maxWait)}
}
