package registry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestIncompleteReservation binds reservations whose maker died between two writes.
func TestIncompleteReservation(t *testing.T) {
	c := claim("node-1", "1", "uid-1")
	reserve := func(w *world) func() error {
		return func() error {
			_, err := w.Reserve(context.Background(), c, w.clock.now().Add(time.Minute))
			return err
		}
	}
	for name, prepare := range map[string]func(w *world){
		"without pointers":             func(w *world) { w.dying(2, false, reserve(w)) },
		"without that of the UID":      func(w *world) { w.dying(3, false, reserve(w)) },
		"with those of an earlier one": func(w *world) { w.mustReserve(c); w.clock.advance(time.Second); w.dying(2, true, reserve(w)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w)
			found, err := w.Lookup(context.Background(), c.NodeName)
			if err != nil || found == nil || found.State != membership.StateReserved {
				t.Fatal(found, err)
			}
			if _, err := w.Bind(context.Background(), found, time.Time{}, nil); !errors.Is(err, membership.CheckRegistryConflict) || !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("Bind: %v, want a conflict", err)
			}
			w.mustJoin(c)
		})
	}
}

func (w *world) mustReserve(c membership.Claim) *membership.Record {
	w.Helper()
	record := testkit.Must(w.Reserve(context.Background(), c, w.clock.now().Add(time.Minute)))
	return record
}

// TestFreeNoMore reserves names that were free when the registry looked, and are not now.
func TestFreeNoMore(t *testing.T) {
	mine := claim("node-1", "1", "uid-1")
	for name, row := range map[string]struct {
		meanwhile func(w *world)
		check     attest.Check // none: it is reserved, or found bound
	}{
		"another machine joined":              {func(w *world) { w.mustJoin(claim("node-1", "2", "uid-2")) }, attest.Check("registry-name")},
		"the same machine joined":             {func(w *world) { w.mustJoin(mine) }, ""},
		"its machine joined under a name":     {func(w *world) { w.mustJoin(claim("node-2", "1", "uid-3")) }, attest.Check("registry-machine")},
		"its Machine UID joined under a name": {func(w *world) { w.mustJoin(claim("node-2", "3", "uid-1")) }, attest.Check("registry-machine-uid")},
		"its machine was reserved, which is over": {func(w *world) {
			w.mustReserve(claim("node-2", "1", "uid-1"))
			w.clock.advance(2 * time.Minute)
		}, ""},
		"one joined and is gone": {func(w *world) {
			w.mustJoin(claim("node-1", "2", "uid-2"))
			if _, err := w.Release(context.Background(), "node-1", "uid-2"); err != nil {
				w.Fatal(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			late := newRegistry(t, w.store, w.clock.now)
			if record, err := late.Lookup(context.Background(), mine.NodeName); record != nil || err != nil {
				t.Fatalf("got %v, %v, want no record", record, err)
			}
			row.meanwhile(w)
			record, err := late.Reserve(context.Background(), mine, w.clock.now().Add(time.Minute))
			if row.check != "" {
				if !errors.Is(err, row.check) {
					t.Errorf("got %v, want %s", err, row.check)
				}
				w.mustJoin(claim("node-1", "2", "uid-2")) // the attempt does not keep other machines from the name
				return
			}
			if err != nil || record.Claim != mine {
				t.Fatalf("got %+v, %v", record, err)
			}
			if _, err := late.Bind(context.Background(), record, time.Time{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPendingChange has a pending change of a bound record: the machine that the node is
// about to get is reserved for it.
func TestPendingChange(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	bound := w.mustJoin(claim("node-1", "1", "uid-1"))
	w.dying(3, false, func() error { _, err := w.Rebind(ctx, bound, "test:2"); return err })
	w.refused(claim("node-2", "2", "uid-2"), attest.Check("registry-reserved"))
	w.refused(claim("node-1", "2", "uid-1"), attest.Check("registry-name"))
	if got, err := w.LookupMachine(ctx, "test:2"); err != nil || got == nil || got.State != membership.StateReserved || got.NodeName != "node-1" {
		t.Errorf("LookupMachine: %+v, %v", got, err)
	}
	if got, err := w.LookupMachine(ctx, "test:1"); err != nil || got == nil || got.State != membership.StateBound {
		t.Errorf("LookupMachine of the machine that it still is: %+v, %v", got, err)
	}
	// Whatever else is written ends the change.
	found := testkit.Must(w.Lookup(ctx, "node-1"))
	if _, err := w.Bind(ctx, found, at().Add(time.Hour), nil); err != nil {
		t.Fatal(err)
	}
	w.mustJoin(claim("node-2", "2", "uid-2"))
	w.refused(claim("node-1", "2", "uid-1"), attest.Check("registry-name"))
}

// beforeCreate is a store that does something before it makes a kind of object.
type beforeCreate struct {
	*objectstore.Store
	run func(o client.Object)
}

func (b *beforeCreate) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	b.run(o)
	return b.Store.Create(ctx, o, options...)
}

// TestLostRace lets another node take the machine, or the UID, after a reservation has the
// name: the reservation takes itself back.
func TestLostRace(t *testing.T) {
	for name, c := range map[string]struct {
		kind  client.Object
		thief membership.Claim
		want  attest.Check
	}{
		"for the machine":     {new(v1alpha1.AttestedMachine), claim("node-2", "1", "uid-2"), attest.Check("registry-machine")},
		"for the Machine UID": {new(v1alpha1.AttestedMachineUID), claim("node-2", "2", "uid-1"), attest.Check("registry-machine-uid")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			done := false
			loser := newRegistryOver(t, &beforeCreate{w.store, func(o client.Object) {
				_, machine := o.(*v1alpha1.AttestedMachine)
				_, wanted := c.kind.(*v1alpha1.AttestedMachine)
				if _, node := o.(*v1alpha1.AttestedNode); !node && machine == wanted && !done {
					done = true
					w.mustJoin(c.thief)
				}
			}}, w.clock.now)
			_, err := loser.Reserve(context.Background(), claim("node-1", "1", "uid-1"), at().Add(time.Minute))
			if !errors.Is(err, c.want) {
				t.Errorf("Reserve: %v, want %s", err, c.want)
			}
			if got, err := w.Lookup(context.Background(), "node-1"); got != nil || err != nil {
				t.Errorf("the loser's name: %+v, %v", got, err)
			}
			w.mustJoin(claim("node-1", "3", "uid-3"))
		})
	}
}

// TestDeletedByHand deletes objects as a person does by force: a record is forgotten, and a
// pointer is written again by the next join of its machine.
func TestDeletedByHand(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	c := claim("node-1", "1", "uid-1")
	w.mustJoin(c)
	pointer := &v1alpha1.AttestedMachine{}
	pointer.Name = v1alpha1.PointerName("test:1")
	testkit.MustDo(w.store.Delete(ctx, pointer))
	w.mustJoin(c)
	w.refused(claim("node-2", "1", "uid-2"), attest.Check("registry-machine"))
	object := &v1alpha1.AttestedNode{}
	object.Name = "node-1"
	testkit.MustDo(w.store.Delete(ctx, object))
	if got, err := w.Lookup(ctx, "node-1"); err != nil || got != nil {
		t.Fatalf("after it: %+v, %v, want no record", got, err)
	}
	w.mustJoin(claim("node-1", "2", "uid-1"))
}

// TestScopes shares the objects between registries of two scopes.
func TestScopes(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	bound := w.mustJoin(claim("node-1", "1", "uid-1"))
	other := newScopedRegistry(t, membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}, w.store, w.clock.now)
	_, name := other.Reserve(ctx, claim("node-1", "2", "uid-2"), at().Add(time.Minute))
	_, machine := other.Reserve(ctx, claim("node-2", "1", "uid-2"), at().Add(time.Minute))
	_, uid := other.Reserve(ctx, claim("node-2", "2", "uid-1"), at().Add(time.Minute))
	_, raise := other.Bind(ctx, bound, at().Add(time.Hour), nil)
	_, look := other.Lookup(ctx, "node-1")
	_, lookMachine := other.LookupMachine(ctx, "test:1")
	for what, err := range map[string]error{"name": name, "machine": machine, "UID": uid, "Raise": raise, "Lookup": look, "LookupMachine": lookMachine} {
		t.Run(what, func(t *testing.T) {
			if !errors.Is(err, membership.CheckRegistryScope) {
				t.Errorf("%s: %v, want %s", what, err, membership.CheckRegistryScope)
			}
		})
	}
	if _, err := other.Release(ctx, "node-1", "uid-1"); err != nil {
		t.Error(err)
	}
	if got, err := w.Lookup(ctx, "node-1"); err != nil || got == nil || got.Version != bound.Version {
		t.Errorf("the record: %+v, %v", got, err)
	}
}
