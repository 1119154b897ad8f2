package registry_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
	"github.com/nodeattest/nodeattest/refusal"
)

// frozen is a cache that never follows.
type frozen struct {
	client.Reader
	objects map[client.Object]bool
}

// freeze copies the store's objects for a claim.
func freeze(t *testing.T, store *objectstore.Store, c membership.Claim) *frozen {
	t.Helper()
	f := &frozen{objects: map[client.Object]bool{}}
	for name, o := range map[string]client.Object{
		c.NodeName:                              new(v1alpha1.AttestedNode),
		v1alpha1.PointerName(string(c.Machine)): new(v1alpha1.AttestedMachine),
		v1alpha1.PointerName(c.MachineUID):      new(v1alpha1.AttestedMachineUID),
	} {
		if err := store.Get(t.Context(), client.ObjectKey{Name: name}, o); err == nil {
			f.objects[o] = true
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	return f
}

func notFound(key client.ObjectKey) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: "test", Resource: "things"}, key.Name)
}

func (f *frozen) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for o := range f.objects {
		if reflect.TypeOf(o) == reflect.TypeOf(into) && o.GetName() == key.Name {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o.DeepCopyObject()).Elem())
			return nil
		}
	}
	return notFound(key)
}

// signerOver is the registry of a process that binds what another one has reserved.
func signerOver(t *testing.T, w *world, stale client.Reader, now func() time.Time) *registry.Registry {
	t.Helper()
	r := testkit.Must(registry.New(membership.Scope{Cluster: "cluster-1"}, w.store, w.store, registry.Options{Stale: stale, Now: now}))
	return r
}

// TestBindOfStale binds reservations that a cache has: where that has all of one, nothing is
// read, and where it is behind no more than would be without it.
func TestBindOfStale(t *testing.T) {
	for name, uid := range map[string]string{"with a Machine UID": "uid-1", "without": ""} {
		c := claim("node-1", "1", uid)
		for name, row := range map[string]struct {
			freeze func(w *world) *frozen
			reads  int
		}{
			"all of it": {func(w *world) *frozen { w.mustReserve(c); return freeze(w.T, w.store, c) }, 0},
			"the node alone": {func(w *world) *frozen {
				w.mustReserve(c)
				return freeze(w.T, w.store, membership.Claim{NodeName: c.NodeName})
			}, 1},
			"the pointers of an earlier one": {func(w *world) *frozen {
				w.mustReserve(c)
				f := freeze(w.T, w.store, c)
				w.clock.advance(time.Second)
				w.mustReserve(c)
				for o := range f.objects {
					if _, ok := o.(*v1alpha1.AttestedNode); ok {
						delete(f.objects, o)
					}
				}
				for o := range freeze(w.T, w.store, membership.Claim{NodeName: c.NodeName}).objects {
					f.objects[o] = true
				}
				return f
			}, 1},
		} {
			t.Run("it has "+name, func(t *testing.T) {
				w := newWorld(t)
				signer := signerOver(t, w, row.freeze(w), w.clock.now)
				w.store.Counts()
				seen, err := signer.Stale().Lookup(t.Context(), c.NodeName)
				if err != nil || seen == nil {
					t.Fatal(seen, err)
				}
				bound, err := signer.Bind(t.Context(), seen, w.clock.now().Add(time.Hour), nil)
				if err != nil || bound.State != membership.StateBound || bound.Claim != c {
					t.Errorf("got %+v, %v", bound, err)
				}
				if reads, writes := w.store.Counts(); reads != row.reads || writes != 1 {
					t.Errorf("%d reads and %d writes, want %d and 1", reads, writes, row.reads)
				}
				w.refused(claim("node-2", "1", "uid-2"), refusal.Check("registry-machine"))
			})
		}
		t.Run(name+", it has an incomplete reservation", func(t *testing.T) {
			w := newWorld(t)
			w.dying(2, false, func() error { _, err := w.Reserve(t.Context(), c, w.clock.now().Add(time.Minute)); return err })
			signer := signerOver(t, w, freeze(t, w.store, c), w.clock.now)
			seen, err := signer.Stale().Lookup(t.Context(), c.NodeName)
			if err != nil || seen == nil {
				t.Fatal(seen, err)
			}
			if _, err := signer.Bind(t.Context(), seen, time.Time{}, nil); !errors.Is(err, membership.CheckRegistryConflict) {
				t.Errorf("Bind: %v, want a conflict", err)
			}
		})
	}
}

// TestStolenSinceCached has another claim take machine, UID or name after a cache has seen a whole
// reservation: a Bind by the cache fails.
func TestStolenSinceCached(t *testing.T) {
	c := claim("node-1", "1", "uid-1")
	for name, stolen := range map[string]membership.Claim{
		"the machine":                claim("node-2", "1", "uid-2"),
		"the Machine UID":            claim("node-2", "2", "uid-1"),
		"the name":                   claim("node-1", "2", "uid-2"),
		"nothing: it reserved again": c,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.mustReserve(c)
			slow := signerOver(t, w, freeze(t, w.store, c), at) // its clock stands
			w.clock.advance(2 * time.Minute)
			thief := w.mustReserve(stolen)
			seen, err := slow.Stale().Lookup(t.Context(), c.NodeName)
			if err != nil || seen == nil {
				t.Fatal(seen, err)
			}
			if _, err := slow.Bind(t.Context(), seen, time.Time{}, nil); !errors.Is(err, membership.CheckRegistryConflict) {
				t.Errorf("Bind: %v, want a conflict", err)
			}
			if _, err := w.Bind(t.Context(), thief, w.clock.now().Add(time.Hour), nil); err != nil {
				t.Errorf("who took it over: %v", err)
			}
		})
	}
}

// TestStaleOfNone has no cache.
func TestStaleOfNone(t *testing.T) {
	r := newRegistry(t, objectstore.New(), at)
	if stale := r.Stale(); stale != r {
		t.Errorf("got %v, want the registry", stale)
	}
}

// TestOwnReservationSeenBehind reserves, sees the reservation in a cache that has no pointers,
// and binds without a read: that it is whole is not forgotten.
func TestOwnReservationSeenBehind(t *testing.T) {
	w := newWorld(t)
	c := claim("node-1", "1", "uid-1")
	cache := new(frozen)
	r := signerOver(t, w, cache, w.clock.now)
	if _, err := r.Reserve(t.Context(), c, w.clock.now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	*cache = *freeze(t, w.store, membership.Claim{NodeName: c.NodeName})
	w.store.Counts()
	seen, err := r.Stale().Lookup(t.Context(), c.NodeName)
	if err != nil || seen == nil {
		t.Fatal(seen, err)
	}
	if _, err := r.Bind(t.Context(), seen, time.Time{}, nil); err != nil {
		t.Error(err)
	}
	if reads, writes := w.store.Counts(); reads != 0 || writes != 1 {
		t.Errorf("%d reads and %d writes, want 0 and 1", reads, writes)
	}
}

// TestNoManagedFields leaves none where a node's object was written over.
func TestNoManagedFields(t *testing.T) {
	w := newWorld(t)
	c := claim("node-1", "1", "uid-1")
	w.mustReserve(c)
	o := new(v1alpha1.AttestedNode)
	testkit.MustDo(w.store.Get(t.Context(), client.ObjectKey{Name: c.NodeName}, o))
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}} // as an API server has them of a creation
	testkit.MustDo(w.store.Update(t.Context(), o))
	w.mustJoin(c)
	if err := w.store.Get(t.Context(), client.ObjectKey{Name: c.NodeName}, o); err != nil || len(o.ManagedFields) != 0 {
		t.Errorf("got %v, %+v", err, o.ManagedFields)
	}
}

// asked is a reader that notes the resource versions it was asked for.
type asked struct {
	client.Reader
	has      map[string]error // by resource version
	versions []string
}

func (a *asked) Get(_ context.Context, key client.ObjectKey, _ client.Object, options ...client.GetOption) error {
	o := new(client.GetOptions).ApplyOptions(options)
	version := ""
	if o.Raw != nil {
		version = o.Raw.ResourceVersion
	}
	a.versions = append(a.versions, version)
	return a.has[version]
}

// TestRemembered asks the API server's memory, and its storage for objects that are not there.
func TestRemembered(t *testing.T) {
	none, broken := notFound(client.ObjectKey{Name: "n"}), errors.New("broken")
	for name, row := range map[string]struct {
		memory, stored error
		want           error
		asked          []string
	}{
		"in memory":        {nil, broken, nil, []string{"0"}},
		"stored":           {none, nil, nil, []string{"0", ""}},
		"nowhere":          {none, none, none, []string{"0", ""}},
		"not to be read":   {broken, nil, broken, []string{"0"}},
		"no more, or late": {none, broken, broken, []string{"0", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			live := &asked{has: map[string]error{"0": row.memory, "": row.stored}}
			err := registry.Remembered(live).Get(t.Context(), client.ObjectKey{Name: "n"}, new(v1alpha1.AttestedNode))
			if !errors.Is(err, row.want) || !reflect.DeepEqual(live.versions, row.asked) {
				t.Errorf("got %v after %q, want %v after %q", err, live.versions, row.want, row.asked)
			}
		})
	}
}
