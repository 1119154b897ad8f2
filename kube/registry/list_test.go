package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

// paged lists as an API server does: as many as are asked for. The second page expires once.
type paged struct {
	*objectstore.Store
	expired bool
	pages   []int
}

func (p *paged) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	from, _ := strconv.Atoi(o.Continue)
	if from > 0 && !p.expired {
		p.expired = true
		err := apierrors.NewResourceExpired("too old")
		err.ErrStatus.ListMeta.Continue = o.Continue
		return err
	}
	if err := p.Store.List(ctx, into); err != nil {
		return err
	}
	list := into.(*v1alpha1.AttestedNodeList)
	to := min(len(list.Items), from+int(o.Limit))
	if to < len(list.Items) {
		list.Continue = strconv.Itoa(to)
	}
	list.Items = list.Items[from:to]
	p.pages = append(p.pages, len(list.Items))
	return nil
}

// TestRecords lists the records of two scopes, some of which have ended, in pages; and sweeps.
func TestRecords(t *testing.T) {
	now := at()
	clock := func() time.Time { return now }
	p := &paged{Store: objectstore.New()}
	byAK := newRegistryOver(t, p, clock)
	byRack := newScopedRegistry(t, membership.Scope{Cluster: "cluster-1", Provider: "rack", Road: attest.RoadDocument}, p, clock)
	join := func(r *registry.Registry, name string, end time.Duration) {
		t.Helper()
		record, err := r.Reserve(t.Context(), claim(name, name, "uid-"+name), now.Add(time.Minute))
		if err == nil && end != 0 {
			_, err = r.Bind(t.Context(), record, now.Add(end), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const many = 300
	for i := range many {
		join(byAK, fmt.Sprintf("node-%03d", i), time.Hour)
	}
	join(byRack, "a-rack", time.Hour)
	join(byRack, "lapsing", 0)
	join(byAK, "resting", time.Minute)
	join(byAK, "rests-longer", 48*time.Hour)
	for _, name := range []string{"resting", "rests-longer"} {
		if released, err := byAK.Release(t.Context(), name, "uid-"+name); err != nil || !released {
			t.Fatal(err)
		}
	}
	list := func(r *registry.Registry) []string {
		t.Helper()
		var names []string
		for r, err := range r.Records(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, r.NodeName)
		}
		if !slices.IsSorted(names) {
			t.Errorf("not in order: %q", names)
		}
		return names
	}
	if got := list(byAK); len(got) != many+2 {
		t.Errorf("%d records, want %d", len(got), many+2)
	}
	if !slices.Equal(p.pages, []int{256, many + 4 - 256}) || !p.expired {
		t.Errorf("pages of %v", p.pages)
	}
	if got := list(byRack); !slices.Equal(got, []string{"a-rack", "lapsing"}) {
		t.Errorf("records of a scope: %q", got)
	}
	p.pages = nil
	for range byAK.Records(t.Context()) { // who stops reads no more pages
		break
	}
	if len(p.pages) != 1 {
		t.Errorf("stopped after pages of %v", p.pages)
	}

	now = now.Add(24*time.Hour + time.Minute - time.Second)
	if got := list(byRack); !slices.Equal(got, []string{"a-rack"}) {
		t.Errorf("records of a scope that count: %q", got)
	}
	if removed, err := byRack.Sweep(t.Context()); err != nil || removed != 0 {
		t.Errorf("less than a day after they ended: %d removed, %v", removed, err)
	}
	now = now.Add(2 * time.Second)
	p.Counts()
	removed, err := byRack.Sweep(t.Context())
	if _, writes := p.Counts(); err != nil || removed != 2 || writes != 5 {
		t.Errorf("%d removed by %d writes, %v, want 2 by 5: the name, machine and Machine UID of one, and of one that has rested the name and the Machine UID", removed, writes, err)
	}
	if removed, err := byRack.Sweep(t.Context()); err != nil || removed != 0 || len(list(byAK)) != many+1 {
		t.Errorf("again: %d removed, %v, %d records", removed, err, len(list(byAK)))
	}
	for _, name := range []string{"resting", "lapsing"} { // are free for any machine
		join(byRack, name, time.Hour)
	}
	if _, err := byAK.Reserve(t.Context(), claim("rests-longer", "1", "uid-1"), now.Add(time.Minute)); !errors.Is(err, membership.CheckRegistryResting) {
		t.Errorf("a name that rests: %v", err)
	}
}

// TestDamagedRecords lists and sweeps around an object that was edited.
func TestDamagedRecords(t *testing.T) {
	now := at()
	store := objectstore.New()
	r := newRegistryOver(t, store, func() time.Time { return now })
	for _, name := range []string{"a", "b", "c"} {
		if _, err := r.Reserve(t.Context(), claim(name, name, ""), now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	var b v1alpha1.AttestedNode
	testkit.MustDo(store.Get(t.Context(), client.ObjectKey{Name: "b"}, &b))
	b.Spec.Deadline = &metav1.Time{}
	testkit.MustDo(store.Update(t.Context(), &b))
	var names []string
	var err error
	for record, e := range r.Records(t.Context()) {
		if err = e; e == nil {
			names = append(names, record.NodeName)
		}
	}
	if !errors.Is(err, registry.ErrObject) || !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("%q, %v, want a and c, and the error at the end", names, err)
	}
	now = now.Add(25 * time.Hour)
	if removed, err := r.Sweep(t.Context()); !errors.Is(err, registry.ErrObject) || removed != 2 {
		t.Errorf("%d removed, %v", removed, err)
	}
	for _, none := range []*registry.Registry{nil, (*registry.Registry)(nil).Stale(), new(registry.Registry)} {
		answers := 0
		for record, err := range none.Records(t.Context()) {
			if answers++; record != nil || err == nil {
				t.Errorf("%v were listed", none)
			}
		}
		if answers != 1 {
			t.Errorf("%d answers for %v, want one error", answers, none)
		}
	}
}
