// Package objectstore keeps Kubernetes objects in memory, for tests: controller-runtime's fake client
// with the UIDs, conflicts and preconditions of an API server, whose calls are counted and can fail.
package objectstore

import (
	"context"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
)

// Store is a client of the registry's objects and Secrets.
type Store struct {
	client.Client

	mu     sync.Mutex
	uids   int
	reads  int
	writes int
	fault  func(write int) (before, after error)
}

// New makes an empty store.
func New() *Store {
	scheme := runtime.NewScheme()
	if err := (&runtime.SchemeBuilder{corev1.AddToScheme, v1alpha1.AddToScheme}).AddToScheme(scheme); err != nil {
		panic(err)
	}
	return &Store{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
}

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

func (s *Store) read(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	return ctx.Err()
}

// Get reads an object.
func (s *Store) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := s.read(ctx); err != nil {
		return err
	}
	return s.Client.Get(ctx, key, into, options...)
}

// List reads all objects of a kind.
func (s *Store) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	if err := s.read(ctx); err != nil {
		return err
	}
	return s.Client.List(ctx, into, options...)
}

// write counts a write and runs f between the faults. It refuses a write over another object of
// the same name; uid is nil for a new object.
func (s *Store) write(ctx context.Context, o client.Object, uid *types.UID, f func() error) error {
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
	if uid != nil {
		old := o.DeepCopyObject().(client.Object)
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(o), old); err == nil && old.GetUID() != *uid {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), nil)
		}
	}
	if err := f(); err != nil {
		return err
	}
	return after
}

// Create stores a new object.
func (s *Store) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return s.write(ctx, o, nil, func() error {
		s.uids++
		o.SetUID(types.UID("uid-" + strconv.Itoa(s.uids)))
		return s.Client.Create(ctx, o, options...)
	})
}

// Update stores an object over the version that it has.
func (s *Store) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	uid := o.GetUID()
	return s.write(ctx, o, &uid, func() error { return s.Client.Update(ctx, o, options...) })
}

// Delete removes an object, or marks it if it has finalizers.
func (s *Store) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	all := new(client.DeleteOptions).ApplyOptions(options)
	var uid *types.UID
	if all.Preconditions != nil {
		uid = all.Preconditions.UID
	}
	return s.write(ctx, o, uid, func() error { return s.Client.Delete(ctx, o, options...) })
}
