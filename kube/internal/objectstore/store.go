// Package objectstore keeps Kubernetes objects in memory, for tests,
// with the rules of an API server that a registry relies on:
// versions that no other object ever has, writes over a version, preconditions, finalizers. It
// knows no schemas: those are tested against a real API server.
package objectstore

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Store is a client.Reader and client.Writer of cluster-scoped objects. Methods that a
// registry does not need panic.
type Store struct {
	client.Client // nil

	mu      sync.Mutex
	objects map[string][]byte
	version int
	reads   int
	writes  int
	fault   func(write int) (before, after error)
}

// New makes an empty store.
func New() *Store { return &Store{objects: map[string][]byte{}} }

// Fault has f asked about each write from now on, counted from 1: an error before is returned
// instead of the write, an error after is returned although the write was done. Nil ends this.
func (s *Store) Fault(f func(write int) (before, after error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.writes = f, 0
}

// Counts returns how many reads and writes there were since the last call.
func (s *Store) Counts() (reads, writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reads, writes = s.reads, s.writes
	s.reads, s.writes = 0, 0
	return reads, writes
}

// Len returns how many objects there are.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.objects)
}

func key(o client.Object, name string) string { return reflect.TypeOf(o).String() + " " + name }

func resource(o client.Object) schema.GroupResource {
	return schema.GroupResource{Group: "test", Resource: reflect.TypeOf(o).Elem().Name()}
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	text, ok := s.objects[key(into, name.Name)]
	if !ok {
		return apierrors.NewNotFound(resource(into), name.Name)
	}
	return decode(text, into)
}

// List reads all objects of a kind, in the order of their names.
func (s *Store) List(ctx context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	items := reflect.ValueOf(into).Elem().FieldByName("Items")
	items.SetZero()
	prefix := reflect.PointerTo(items.Type().Elem()).String() + " "
	for _, k := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(k, prefix) {
			continue
		}
		item := reflect.New(items.Type().Elem())
		if err := json.Unmarshal(s.objects[k], item.Interface()); err != nil {
			return err
		}
		items.Set(reflect.Append(items, item.Elem()))
	}
	return nil
}

func decode(text []byte, into client.Object) error {
	v := reflect.ValueOf(into).Elem()
	v.Set(reflect.Zero(v.Type()))
	return json.Unmarshal(text, into)
}

// write counts a write and runs f between the faults.
func (s *Store) write(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	var before, after error
	if s.fault != nil {
		before, after = s.fault(s.writes)
	}
	if before != nil {
		return before
	}
	if err := f(); err != nil {
		return err
	}
	return after
}

// reset removes managed fields if the writer wants none.
func reset(o client.Object) {
	if m := o.GetManagedFields(); len(m) == 1 && reflect.DeepEqual(m[0], metav1.ManagedFieldsEntry{}) {
		o.SetManagedFields(nil)
	}
}

func (s *Store) put(o client.Object) error {
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	s.objects[key(o, o.GetName())] = text
	return decode(text, o)
}

// Create stores a new object.
func (s *Store) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return s.write(ctx, func() error {
		if _, ok := s.objects[key(o, o.GetName())]; ok {
			return apierrors.NewAlreadyExists(resource(o), o.GetName())
		}
		o.SetUID(types.UID("uid-" + strconv.Itoa(s.version+1)))
		o.SetCreationTimestamp(metav1.Now())
		return s.put(o)
	})
}

// current returns the stored object that has the name of another one.
func (s *Store) current(o client.Object) (client.Object, error) {
	text, ok := s.objects[key(o, o.GetName())]
	if !ok {
		return nil, apierrors.NewNotFound(resource(o), o.GetName())
	}
	old := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err := decode(text, old); err != nil {
		return nil, err
	}
	return old, nil
}

// Update stores an object over the version that it has.
func (s *Store) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return s.write(ctx, func() error {
		old, err := s.current(o)
		if err != nil {
			return err
		}
		if old.GetResourceVersion() != o.GetResourceVersion() || old.GetUID() != o.GetUID() {
			return apierrors.NewConflict(resource(o), o.GetName(), nil)
		}
		reset(o)
		o.SetDeletionTimestamp(old.GetDeletionTimestamp())
		if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
			delete(s.objects, key(o, o.GetName()))
			return nil
		}
		if same(old, o) {
			return nil
		}
		return s.put(o)
	})
}

// same reports whether two objects are stored alike: then an API server writes nothing.
func same(a, b client.Object) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// Delete removes an object, or marks it if it has finalizers.
func (s *Store) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	var all client.DeleteOptions
	all.ApplyOptions(options)
	return s.write(ctx, func() error {
		old, err := s.current(o)
		if err != nil {
			return err
		}
		if p := all.Preconditions; p != nil && (p.UID != nil && *p.UID != old.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion()) {
			return apierrors.NewConflict(resource(o), o.GetName(), nil)
		}
		if len(old.GetFinalizers()) == 0 {
			delete(s.objects, key(o, o.GetName()))
			return nil
		}
		if old.GetDeletionTimestamp() == nil {
			now := metav1.NewTime(time.Now())
			old.SetDeletionTimestamp(&now)
			return s.put(old)
		}
		return nil
	})
}
