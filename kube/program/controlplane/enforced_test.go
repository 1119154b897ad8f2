package controlplane

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// A leased cluster has the controller's Lease, or none.
type leased struct {
	client.Client
	key     client.ObjectKey
	updates []error // of the next updates
}

func newLeased(t *testing.T, exists bool, annotations map[string]string) *leased {
	t.Helper()
	l := &leased{key: client.ObjectKey{Namespace: "ours", Name: "controller"}}
	scheme := runtime.NewScheme()
	testkit.MustDo(clientscheme.AddToScheme(scheme))
	b := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if len(l.updates) != 0 {
				err := l.updates[0]
				l.updates = l.updates[1:]
				return err
			}
			return c.Update(ctx, o, options...)
		},
	})
	if exists {
		b = b.WithObjects(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name, Annotations: annotations}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}})
	}
	l.Client = b.Build()
	return l
}

func (l *leased) replica(way error) *enforcement {
	return &enforcement{watch: func(*http.Request) error { return way }, reader: l, writer: l, lease: l.key}
}

// since says whether the Lease has the annotation. Nothing else of it may change.
func (l *leased) since(t *testing.T) bool {
	t.Helper()
	var lease coordinationv1.Lease
	err := l.Get(t.Context(), l.key, &lease)
	if apierrors.IsNotFound(err) {
		return false
	}
	if err != nil || *lease.Spec.HolderIdentity != "a" || lease.Annotations["other"] != "b" && len(lease.Annotations) > 1 {
		t.Fatalf("%+v, %v", lease, err)
	}
	_, ok := lease.Annotations[enforcedSince]
	return ok
}

var errWay = errors.New("a way around")

// TestEnforcement: a way around keeps a controller from being ready until the cluster has once
// enforced without one, and no longer.
func TestEnforcement(t *testing.T) {
	var down error = apierrors.NewServiceUnavailable("down")
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "controller", nil)
	has := map[string]string{enforcedSince: "2026-01-02T03:04:05Z"}
	for name, row := range map[string]struct {
		noLease           bool
		annotations       map[string]string
		way               error
		observes, ignores bool
		updates           []error

		ready, done, since bool
		err                error
	}{
		"a way around, for the first time":            {way: errWay},
		"and no replica leads":                        {way: errWay, noLease: true},
		"no way around":                               {ready: true, done: true, since: true},
		"with another annotation":                     {annotations: map[string]string{"other": "b"}, ready: true, done: true, since: true},
		"and no replica leads yet":                    {noLease: true, ready: true},
		"the leader renews the Lease":                 {updates: []error{conflict}, ready: true},
		"it cannot be written":                        {updates: []error{down}, ready: true, err: down},
		"a way around, once it has enforced":          {annotations: has, way: errWay, ready: true, done: true, since: true},
		"no way around, once it has enforced":         {annotations: has, ready: true, done: true, since: true},
		"it observes":                                 {observes: true, ignores: true, ready: true, done: true},
		"it observes again":                           {annotations: has, observes: true, ignores: true, ready: true, done: true},
		"it observes again, and cannot write":         {annotations: has, updates: []error{down}, observes: true, ignores: true, ready: true, since: true, err: down},
		"it may ignore ways around":                   {ignores: true, ready: true, done: true},
		"it may ignore ways around, and has enforced": {annotations: has, ignores: true, ready: true, done: true, since: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeased(t, !row.noLease, row.annotations)
			l.updates = row.updates
			e := l.replica(row.way)
			e.observes, e.ignores = row.observes, row.ignores
			if err := e.Check(nil); !errors.Is(err, row.way) {
				t.Errorf("before it has looked at the Lease: %v", err)
			}
			done, err := e.look(t.Context())
			if done != row.done || !errors.Is(err, row.err) || l.since(t) != row.since {
				t.Errorf("got %t, %v and %t, want %t, %v and %t", done, err, l.since(t), row.done, row.err, row.since)
			}
			if err := e.Check(nil); (err == nil) != row.ready {
				t.Errorf("got %v, want ready: %t", err, row.ready)
			}
			e.watch = func(*http.Request) error { return errWay } // which appears later
			if err := e.Check(nil); (err == nil) != (row.ready && !row.ignores) {
				t.Errorf("a way around that appears: %v", err)
			}
		})
	}
}

// TestEnforcementLooksAgain until the Lease is there, and another replica finds it then. It says
// once that it fails.
func TestEnforcementLooksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLeased(t, true, nil)
		down := errors.New("no answer")
		l.updates = []error{down, down, down}
		var said strings.Builder
		ctx, stop := context.WithCancel(log.IntoContext(t.Context(), funcr.New(func(_, args string) { said.WriteString(args) }, funcr.Options{})))
		var none atomic.Bool
		e, next := l.replica(nil), l.replica(nil)
		e.watch = func(*http.Request) error {
			if none.Load() {
				return nil
			}
			return errWay
		}
		next.watch = func(*http.Request) error { return errWay }
		if e.NeedLeaderElection() {
			t.Error("only the leader looks")
		}
		ended := make(chan error)
		go func() { ended <- e.Start(ctx) }()
		wait := func(ready, since bool) {
			t.Helper()
			for range 5 {
				time.Sleep(enforcedInterval)
			}
			synctest.Wait()
			if err := e.Check(nil); (err == nil) != ready || l.since(t) != since {
				t.Errorf("got %v and %t, want ready: %t and %t", err, l.since(t), ready, since)
			}
		}
		wait(false, false)
		none.Store(true)
		wait(true, true)
		none.Store(false)
		wait(true, true)
		if strings.Count(said.String(), "no answer") != 1 {
			t.Errorf("said %s", &said)
		}
		go func() { ended <- next.Start(ctx) }()
		synctest.Wait()
		if err := next.Check(nil); err != nil {
			t.Errorf("a new image: %v", err)
		}
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
