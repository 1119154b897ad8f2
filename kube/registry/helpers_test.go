package registry_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// between is a store that does something once, before its first update.
type between struct {
	*objectstore.Store
	once   sync.Once
	before func()
}

func (b *between) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	b.once.Do(b.before)
	return b.Store.Update(ctx, o, options...)
}

func newRegistryOver(t testing.TB, c client.Client, now func() time.Time) *registry.Registry {
	t.Helper()
	r := testkit.Must(registry.New(membership.Scope{Cluster: "cluster-1"}, c, c, registry.Options{Now: now}))
	return r
}

func newScopedRegistry(t testing.TB, scope membership.Scope, c client.Client, now func() time.Time) *registry.Registry {
	t.Helper()
	r := testkit.Must(registry.New(scope, c, c, registry.Options{Now: now}))
	return r
}
