package registry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// failing is a store whose n-th call fails; 0: none does.
type failing struct {
	*objectstore.Store
	n, calls int
	err      error
}

func (f *failing) call() error {
	if f.calls++; f.calls == f.n {
		return f.err
	}
	return nil
}

func (f *failing) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.Store.Get(ctx, key, o, options...)
}

func (f *failing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.Store.List(ctx, list, options...)
}

func (f *failing) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.Store.Create(ctx, o, options...)
}

func (f *failing) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.Store.Update(ctx, o, options...)
}

func (f *failing) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	if err := f.call(); err != nil {
		return err
	}
	return f.Store.Delete(ctx, o, options...)
}

// TestEveryFailure has each call of the API server fail in turn: the registry's method returns the
// error, and it is no refusal. Only old pointers are left where they cannot be removed.
func TestEveryFailure(t *testing.T) {
	down := errors.New("the API server does not answer")
	for name, row := range map[string]struct {
		tidies int // the calls from this one on remove pointers; 0: none does
		do     func(w *world, r *registry.Registry) error
	}{
		"Lookup": {0, func(w *world, r *registry.Registry) error { _, err := r.Lookup(w.Context(), "node-1"); return err }},
		"LookupMachine": {0, func(w *world, r *registry.Registry) error {
			_, err := r.LookupMachine(w.Context(), "test:1")
			return err
		}},
		"LookupMachineUID": {0, func(w *world, r *registry.Registry) error {
			_, err := r.LookupMachineUID(w.Context(), "uid-node-1")
			return err
		}},
		"Reserve": {0, func(w *world, r *registry.Registry) error {
			_, err := r.Reserve(w.Context(), claimOf("node-2", "2"), w.clock.now().Add(time.Minute))
			return err
		}},
		"Reserve of a bound one": {0, func(w *world, r *registry.Registry) error {
			_, err := r.Reserve(w.Context(), claimOf("node-1", "1"), w.clock.now().Add(time.Minute))
			return err
		}},
		"Reserve after another": {0, func(w *world, r *registry.Registry) error {
			_, err := r.Reserve(w.Context(), claimOf("node-4", "3"), w.clock.now().Add(time.Minute))
			return err
		}},
		"Bind": {0, func(w *world, r *registry.Registry) error {
			bound, err := w.Lookup(w.Context(), "node-1") // which the other registry has not read
			if err == nil {
				_, err = r.Bind(w.Context(), bound, w.clock.now().Add(48*time.Hour), nil)
			}
			return err
		}},
		"Bind of a reservation": {0, func(w *world, r *registry.Registry) error {
			reserved, err := w.Reserve(w.Context(), claimOf("node-2", "2"), w.clock.now().Add(time.Minute))
			if err == nil {
				_, err = r.Bind(w.Context(), reserved, time.Time{}, nil)
			}
			return err
		}},
		"Release": {3, func(w *world, r *registry.Registry) error {
			_, err := r.Release(w.Context(), "node-1", "uid-node-1")
			return err
		}},
		"Repair": {0, func(w *world, r *registry.Registry) error { _, err := r.Repair(w.Context()); return err }},
		"Sweep":  {3, func(w *world, r *registry.Registry) error { _, err := r.Sweep(w.Context()); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				w := newWorld(t)
				w.bindFor(claimOf("node-1", "1"), 24*time.Hour)
				if _, err := w.Reserve(t.Context(), claimOf("node-3", "3"), w.clock.now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				p := &v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName("test:1")}}
				if name == "Repair" {
					if err := errors.Join(w.store.Get(t.Context(), client.ObjectKeyFromObject(p), p), w.store.Delete(t.Context(), p)); err != nil {
						p.Finalizers = nil
						testkit.MustDo(errors.Join(w.store.Update(t.Context(), p), w.store.Delete(t.Context(), p)))
					}
				}
				w.clock.advance(2 * time.Second)
				if name == "Sweep" {
					w.clock.advance(72 * time.Hour)
				}
				f := &failing{Store: w.store, n: n, err: down}
				err := row.do(w, newRegistryOver(t, f, w.clock.now))
				if f.calls < n {
					if err != nil {
						t.Errorf("without a failure: %v", err)
					}
					if n == 1 {
						t.Error("nothing was asked")
					}
					return
				}
				if tidying := row.tidies != 0 && n >= row.tidies; !errors.Is(err, down) && !(tidying && err == nil) {
					t.Errorf("call %d of the API server: %v", n, err)
				}
			}
		})
	}
}

// TestEnded: nothing is read or written once the context has ended.
func TestEnded(t *testing.T) {
	w := newWorld(t)
	w.bindFor(claimOf("node-1", "1"), time.Hour)
	bound := testkit.Must(w.Lookup(t.Context(), "node-1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := &failing{Store: w.store}
	r := newRegistryOver(t, f, w.clock.now)
	if _, err := r.Lookup(t.Context(), "node-1"); err != nil { // which it remembers
		t.Fatal(err)
	}
	f.calls = 0
	_, lookup := r.Lookup(ctx, "node-1")
	_, nobody := r.LookupMachine(ctx, "")
	_, machine := r.LookupMachine(ctx, "test:1")
	_, reserve := r.Reserve(ctx, claimOf("node-2", "2"), w.clock.now().Add(time.Minute))
	_, bind := r.Bind(ctx, bound, w.clock.now().Add(2*time.Hour), nil)
	_, release := r.Release(ctx, "node-1", "uid-node-1")
	for name, err := range map[string]error{"Lookup": lookup, "LookupMachine": machine, "LookupMachine of none": nobody, "Reserve": reserve, "Bind": bind, "Release": release} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.calls != 0 {
		t.Errorf("%d calls of the API server", f.calls)
	}
}

// TestWithoutDefinitions: an API server that does not know the custom resources has not said that
// there is no record.
func TestWithoutDefinitions(t *testing.T) {
	w := newWorld(t)
	unknown := apierrors.NewGenericServerResponse(404, "get", v1alpha1.GroupVersion().WithResource("attestednodes").GroupResource(), "", "404 page not found", 0, true)
	f := &failing{Store: w.store, n: 1, err: unknown}
	if record, err := newRegistryOver(t, f, w.clock.now).Lookup(t.Context(), "node-1"); err == nil {
		t.Errorf("got %v, want an error", record)
	}
}

// TestRefusedClaims: a bad claim, and a record with another name, change nothing.
func TestRefusedClaims(t *testing.T) {
	w := newWorld(t)
	reserved := testkit.Must(w.Reserve(t.Context(), claimOf("node-1", "1"), w.clock.now().Add(time.Minute)))
	w.store.Counts() // from here on
	for name, claim := range map[string]membership.Claim{"no name": {Machine: "test:2", MachineUID: "uid-2"}, "no machine": {NodeName: "node-2", MachineUID: "uid-2"}, "no identity": {NodeName: "node-2", Machine: "2"}} {
		if record, err := w.Reserve(t.Context(), claim, w.clock.now().Add(time.Minute)); err == nil {
			t.Errorf("%s: reserved %v", name, record)
		}
	}
	other := *reserved
	other.NodeName = "node-2"
	if record, err := w.Bind(t.Context(), &other, time.Time{}, nil); err == nil {
		t.Errorf("with another's version: bound %v", record)
	}
	if _, writes := w.store.Counts(); writes != 0 {
		t.Errorf("%d writes", writes)
	}
}

// TestNew: a registry has a scope, a reader and a writer.
func TestNew(t *testing.T) {
	store := objectstore.New()
	for name, err := range map[string]error{
		"no reader": second(registry.New(membership.Scope{Cluster: "c"}, nil, store, registry.Options{})),
		"no writer": second(registry.New(membership.Scope{Cluster: "c"}, store, nil, registry.Options{})),
		"no cache":  second(registry.Cached(t.Context(), nil)),
	} {
		if !errors.Is(err, refusal.CheckConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := registry.New(membership.Scope{}, store, store, registry.Options{}); err == nil {
		t.Error("a scope of no cluster")
	}
}

func second[T any](_ T, err error) error { return err }
