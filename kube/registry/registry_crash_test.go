package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/internal/objectstore"
	"github.com/nodeattest/nodeattest/kube/registry"
)

var errCrash = errors.New("the process has died")

// clock is one that a test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// world is a store, its clock, and a handle on it.
type world struct {
	*testing.T
	store *objectstore.Store
	clock *clock
	*registry.Registry
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, store: objectstore.New(), clock: &clock{at: at()}}
	w.Registry = newRegistry(t, w.store, w.clock.now)
	return w
}

func (w *world) join(c membership.Claim) (*membership.Record, error) {
	reserved, err := w.Reserve(context.Background(), c, w.clock.now().Add(time.Minute))
	if err != nil {
		return nil, err
	}
	return w.Bind(context.Background(), reserved, time.Time{}, nil)
}

func (w *world) mustJoin(c membership.Claim) *membership.Record {
	w.Helper()
	record, err := w.join(c)
	if err != nil {
		w.Fatalf("join of %s as %s: %v", c.Machine, c.NodeName, err)
	}
	return record
}

// dying runs f in a process that dies at its n-th write, before or after it is stored. It
// returns false if f had fewer writes.
func (w *world) dying(n int, stored bool, f func() error) bool {
	w.Helper()
	dead := false
	w.store.Fault(func(write int) (before, after error) {
		switch {
		case dead:
			return errCrash, nil
		case write < n:
			return nil, nil
		}
		dead = true
		if stored {
			return nil, errCrash
		}
		return errCrash, nil
	})
	err := f()
	w.store.Fault(nil)
	if !dead && err != nil {
		w.Fatalf("without a crash: %v", err)
	}
	return dead
}

// everyCrash runs a test with a process that dies at each of its writes in turn.
func everyCrash(t *testing.T, prepare func(w *world) func() error, check func(w *world)) {
	t.Helper()
	for _, stored := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			t.Run(fmt.Sprintf("write %d stored %t", n, stored), func(t *testing.T) {
				w := newWorld(t)
				died = w.dying(n, stored, prepare(w))
				check(w)
			})
			if !died {
				break
			}
		}
	}
}

// TestCrashInJoin kills a join at each write: the same node finishes it at once; and after
// the deadline the name and the machine are free for others.
func TestCrashInJoin(t *testing.T) {
	c := claim("node-1", "1", "uid-1")
	prepare := func(w *world) func() error {
		return func() error {
			_, err := w.join(c)
			return err
		}
	}
	t.Run("is finished", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			record := w.mustJoin(c)
			if _, err := w.Bind(context.Background(), record, at().Add(time.Hour), nil); err != nil {
				w.Error(err)
			}
			w.refused(claim("node-1", "2", "uid-1"), attest.Check("registry-name"))
			w.refused(claim("node-2", "1", "uid-2"), attest.Check("registry-machine"))
			w.refused(claim("node-2", "2", "uid-1"), attest.Check("registry-machine-uid"))
		})
	})
	t.Run("is taken over", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			if record, err := w.Lookup(context.Background(), "node-1"); err != nil || record != nil && record.State == membership.StateBound {
				return // it had been bound, or Lookup says so
			}
			w.clock.advance(time.Minute)
			w.mustJoin(claim("node-1", "2", "uid-2"))
			w.mustJoin(claim("node-2", "1", "uid-1"))
			w.refused(c, attest.Check("registry-name"))
		})
	})
	t.Run("is taken over piece by piece", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			if record, err := w.Lookup(context.Background(), "node-1"); err != nil || record != nil && record.State == membership.StateBound {
				return
			}
			w.clock.advance(time.Minute)
			w.mustJoin(claim("node-2", "1", "uid-2"))
			w.mustJoin(claim("node-3", "3", "uid-1"))
			w.refused(c, attest.Check("registry-machine"))
			w.mustJoin(claim("node-1", "4", "uid-4"))
		})
	})
}

func (w *world) refused(c membership.Claim, check attest.Check) {
	w.Helper()
	if _, err := w.join(c); !errors.Is(err, check) {
		w.Errorf("join of %s as %s: got %v, want %s", c.Machine, c.NodeName, err, check)
	}
}

// TestCrashInRebind kills a Rebind at each write: it can be done again at once, and after
// its deadline the new machine is another's if the node did not get it.
func TestCrashInRebind(t *testing.T) {
	var bound *membership.Record
	prepare := func(w *world) func() error {
		bound = w.mustJoin(claim("node-1", "1", "uid-1"))
		return func() error { _, err := w.Rebind(context.Background(), bound, "test:2"); return err }
	}
	current := func(w *world) *membership.Record {
		w.Helper()
		record, err := w.Lookup(context.Background(), "node-1")
		if err != nil || record == nil || record.State != membership.StateBound {
			w.Fatalf("the record: %+v, %v", record, err)
		}
		return record
	}
	t.Run("is finished", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			got, err := w.Rebind(context.Background(), current(w), "test:2")
			if err != nil || got.Machine != "test:2" {
				w.Fatalf("again: %+v, %v", got, err)
			}
			w.refused(claim("node-2", "2", "uid-2"), attest.Check("registry-machine"))
			w.mustJoin(claim("node-2", "1", "uid-2"))
		})
	})
	t.Run("is over", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			w.clock.advance(2 * time.Minute)
			other := claim("node-2", "2", "uid-2")
			if current(w).Machine == "test:2" {
				w.refused(other, attest.Check("registry-machine"))
				return
			}
			w.mustJoin(other)
			if _, err := w.Rebind(context.Background(), current(w), "test:2"); !errors.Is(err, attest.Check("registry-machine")) {
				w.Errorf("Rebind to a machine that was taken: %v", err)
			}
			if _, err := w.Bind(context.Background(), current(w), at().Add(time.Hour), nil); err != nil {
				w.Error(err)
			}
		})
	})
}

// TestCrashInAdopt kills an Adopt at each write.
func TestCrashInAdopt(t *testing.T) {
	everyCrash(t, func(w *world) func() error {
		bound := w.mustJoin(claim("node-1", "1", "uid-1"))
		return func() error { _, err := w.Adopt(context.Background(), bound, "uid-9"); return err }
	}, func(w *world) {
		record, err := w.Lookup(context.Background(), "node-1")
		if err != nil || record == nil {
			w.Fatal(record, err)
		}
		if record, err = w.Adopt(context.Background(), record, "uid-9"); err != nil || record.MachineUID != "uid-9" {
			w.Fatalf("again: %+v, %v", record, err)
		}
		w.refused(claim("node-2", "2", "uid-9"), attest.Check("registry-machine-uid"))
		w.mustJoin(claim("node-2", "2", "uid-1"))
	})
}

// TestCrashInTakingBack kills an Adopt of a resting record at each write: it can be done again at once; and
// after its deadline machine and Machine UID are others', if the node did not get them.
func TestCrashInTakingBack(t *testing.T) {
	prepare := func(w *world) func() error {
		bound := w.mustJoin(claim("node-1", "1", "uid-1"))
		testkit.Must(w.Bind(context.Background(), bound, at().Add(time.Hour), nil))
		testkit.Must(w.Release(context.Background(), "node-1", "uid-1"))
		resting := testkit.Must(w.Lookup(context.Background(), "node-1"))
		return func() error { _, err := w.Adopt(context.Background(), resting, "uid-9"); return err }
	}
	t.Run("is finished", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			record := testkit.Must(w.Lookup(context.Background(), "node-1"))
			record, err := w.Adopt(context.Background(), record, "uid-9")
			if err != nil || record.MachineUID != "uid-9" || record.State != membership.StateBound || record.LastEnd.Before(at().Add(time.Hour)) {
				w.Fatalf("again: %+v, %v", record, err)
			}
			w.refused(claim("node-2", "2", "uid-9"), attest.Check("registry-machine-uid"))
			w.refused(claim("node-2", "1", "uid-2"), attest.Check("registry-machine"))
			w.refused(claim("node-1", "2", "uid-2"), attest.Check("registry-name"))
		})
	})
	t.Run("is over", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			w.clock.advance(2 * time.Minute)
			if testkit.Must(w.Lookup(context.Background(), "node-1")).State == membership.StateBound {
				w.refused(claim("node-2", "1", "uid-2"), attest.Check("registry-machine"))
				return
			}
			w.mustJoin(claim("node-2", "1", "uid-2"))
			w.mustJoin(claim("node-3", "3", "uid-9"))
			resting := testkit.Must(w.Lookup(context.Background(), "node-1"))
			if _, err := w.Adopt(context.Background(), resting, "uid-8"); !errors.Is(err, attest.Check("registry-machine")) {
				w.Errorf("Adopt of a machine that was taken: %v", err)
			}
			w.refused(claim("node-1", "2", "uid-7"), membership.CheckRegistryResting)
		})
	})
	t.Run("is in the way for a minute", func(t *testing.T) {
		everyCrash(t, prepare, func(w *world) {
			var pointer v1alpha1.AttestedMachine // absent until the machine's is written
			_ = w.store.Get(context.Background(), client.ObjectKey{Name: v1alpha1.PointerName("test:1")}, &pointer)
			pending := pointer.Spec.NodeName == "node-1" && testkit.Must(w.Lookup(context.Background(), "node-1")).State == membership.StateResting
			_, err := w.join(claim("node-2", "1", "uid-2"))
			if pending && !errors.Is(err, attest.Check("registry-reserved")) {
				w.Errorf("join of the pending machine: %v", err)
			}
			record := testkit.Must(w.Lookup(context.Background(), "node-1"))
			if both := err == nil && record.State == membership.StateBound; both {
				w.Errorf("node-2 has machine 1, and node-1 is %+v", record)
			}
			_, adopts := w.Adopt(context.Background(), record, "uid-9")
			if err == nil == (adopts == nil) {
				w.Errorf("join: %v; Adopt: %v", err, adopts)
			}
		})
	})
}

// TestCrashInRelease kills a Release at each write: whatever was written, doing it again
// ends as it should.
func TestCrashInRelease(t *testing.T) {
	for _, issued := range []bool{false, true} {
		t.Run(fmt.Sprintf("issued %t", issued), func(t *testing.T) {
			c := claim("node-1", "1", "uid-1")
			everyCrash(t, func(w *world) func() error {
				bound := w.mustJoin(c)
				if issued {
					if _, err := w.Bind(context.Background(), bound, at().Add(time.Hour), nil); err != nil {
						w.Fatal(err)
					}
				}
				return func() error { _, err := w.Release(context.Background(), c.NodeName, c.MachineUID); return err }
			}, func(w *world) {
				if _, err := w.Release(context.Background(), c.NodeName, c.MachineUID); err != nil {
					w.Fatal(err)
				}
				if issued {
					w.refused(claim("node-1", "2", "uid-2"), membership.CheckRegistryResting)
					w.refused(claim("node-2", "2", "uid-1"), attest.Check("registry-machine-uid"))
					w.mustJoin(claim("node-3", "1", "uid-3"))
					w.clock.advance(time.Hour + time.Second)
				}
				w.mustJoin(claim("node-1", "2", "uid-1"))
			})
		})
	}
}

// TestStolenDuringBind lets another claim take machine or name between a Bind's look and its write:
// the Bind fails.
func TestStolenDuringBind(t *testing.T) {
	for name, stolen := range map[string]membership.Claim{
		"the machine":     claim("node-2", "1", "uid-2"),
		"the Machine UID": claim("node-2", "2", "uid-1"),
		"the name":        claim("node-1", "2", "uid-2"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			slow := newRegistry(t, w.store, at) // its clock stands
			reserved := testkit.Must(slow.Reserve(context.Background(), claim("node-1", "1", "uid-1"), at().Add(time.Minute)))
			w.clock.advance(2 * time.Minute)
			var thief *membership.Record
			w.store.Fault(func(write int) (error, error) { return nil, nil })
			late := newRegistryOver(t, &between{Store: w.store, before: func() {
				thief = w.mustJoin(stolen)
			}}, at)
			if _, err := late.Bind(context.Background(), reserved, time.Time{}, nil); !errors.Is(err, membership.CheckRegistryConflict) {
				t.Errorf("Bind: %v, want a conflict", err)
			}
			if _, err := w.Bind(context.Background(), thief, at().Add(time.Hour), nil); err != nil {
				t.Errorf("who took it over: %v", err)
			}
		})
	}
}
