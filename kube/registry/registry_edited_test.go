package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/kube/api/v1alpha1"
	"github.com/nodeattest/nodeattest/kube/registry"
)

func claimOf(node, machine string) membership.Claim {
	return membership.Claim{NodeName: node, Machine: attest.Identity("test:" + machine), MachineUID: "uid-" + node}
}

// bindFor binds a node, with a certificate of that length.
func (w *world) bindFor(c membership.Claim, length time.Duration) {
	w.Helper()
	seen, err := w.Reserve(w.Context(), c, w.clock.now().Add(time.Minute))
	if err == nil {
		end := w.clock.now().Add(length)
		_, err = w.Bind(w.Context(), seen, end, &csr.IssuedRecord{CredentialID: "X509SHA256=aa", NodeName: c.NodeName, Machine: string(c.Machine),
			MachineUID: c.MachineUID, SignerName: csr.SignerClientTPM, NotBefore: w.clock.now(), NotAfter: end})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// TestEditedNodes: a person has changed a bound node's object, as kubectl edit can where the
// custom resources' rules are missing. No other machine gets the name while its certificate
// lives, nor the machine another name, and a release does not help.
func TestEditedNodes(t *testing.T) {
	for name, change := range map[string]func(s *v1alpha1.AttestedNodeSpec){
		"nothing":                 func(*v1alpha1.AttestedNodeSpec) {},
		"no last end":             func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = nil },
		"a last end in the past":  func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = &metav1.Time{Time: s.LastEnd.Add(-25 * time.Hour)} },
		"a last end a second off": func(s *v1alpha1.AttestedNodeSpec) { s.LastEnd = &metav1.Time{Time: s.LastEnd.Add(-time.Second)} },
		"no state":                func(s *v1alpha1.AttestedNodeSpec) { s.State = "" },
		"resting, no last end":    func(s *v1alpha1.AttestedNodeSpec) { s.State, s.LastEnd = v1alpha1.NodeResting, nil },
		"resting, nothing else": func(s *v1alpha1.AttestedNodeSpec) {
			s.State, s.LastEnd, s.Certificates = v1alpha1.NodeResting, nil, nil
		},
		"a digest of no key": func(s *v1alpha1.AttestedNodeSpec) { s.Certificates[0].SPKISHA256 = "zz" },
		"half a digest":      func(s *v1alpha1.AttestedNodeSpec) { s.Certificates[0].SPKISHA256 = "00" },
		"reserved, and bound before": func(s *v1alpha1.AttestedNodeSpec) {
			s.State, s.Deadline, s.Certificates = v1alpha1.NodeReserved, s.LastEnd, nil
		},
		"reserved":   func(s *v1alpha1.AttestedNodeSpec) { s.State = v1alpha1.NodeReserved },
		"no scope":   func(s *v1alpha1.AttestedNodeSpec) { s.Scope = "" },
		"no machine": func(s *v1alpha1.AttestedNodeSpec) { s.Machine = "" },
		"pending for ever": func(s *v1alpha1.AttestedNodeSpec) {
			s.Pending = &v1alpha1.PendingChange{Machine: "test:2", Deadline: metav1.NewTime(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bindFor(claimOf("node-1", "1"), 24*time.Hour)
			var o v1alpha1.AttestedNode
			testkit.MustDo(w.store.Get(t.Context(), client.ObjectKey{Name: "node-1"}, &o))
			change(&o.Spec)
			testkit.MustDo(w.store.Update(t.Context(), &o))
			thief, second := claimOf("node-1", "2"), claimOf("node-2", "1")
			until := w.clock.now().Add(time.Minute)
			for range 2 {
				if _, err := w.Reserve(t.Context(), thief, until); err == nil {
					t.Error("the name was given away")
				}
				if _, err := w.Reserve(t.Context(), second, until); err == nil && o.Spec.Machine != "" && o.Spec.State == v1alpha1.NodeBound {
					t.Error("the machine got a second name")
				}
				if _, err := w.Release(t.Context(), "node-1", o.Spec.MachineUID); err != nil && !errors.Is(err, registry.ErrObject) {
					t.Errorf("release: %v", err)
				}
				o.Spec.State = "" // the machine of a released node is free
			}
		})
	}
}

// TestReservationOfAClockAhead: a reservation by a replica whose clock was a year ahead, never bound,
// keeps no machine out, and is swept.
func TestReservationOfAClockAhead(t *testing.T) {
	w := newWorld(t)
	ahead := newRegistry(t, w.store, func() time.Time { return w.clock.now().AddDate(1, 0, 0) })
	seen := testkit.Must(ahead.Reserve(t.Context(), claimOf("node-1", "1"), w.clock.now().AddDate(1, 0, 0).Add(time.Minute)))
	for _, c := range []membership.Claim{claimOf("node-1", "2"), claimOf("node-2", "1")} {
		if _, err := w.Reserve(t.Context(), c, w.clock.now().Add(time.Minute)); err != nil {
			t.Errorf("%s for %s: %v", c.NodeName, c.Machine, err)
		}
	}
	if _, err := ahead.Bind(t.Context(), seen, w.clock.now().AddDate(1, 0, 1), nil); !errors.Is(err, membership.CheckRegistryConflict) {
		t.Errorf("it was bound afterwards: %v", err)
	}
	if _, err := ahead.Reserve(t.Context(), claimOf("node-3", "3"), w.clock.now().AddDate(1, 0, 0).Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if removed, err := w.Sweep(t.Context()); removed != 1 || err != nil {
		t.Errorf("swept %d, %v, want the one that is a year ahead and none of those that count", removed, err)
	}
}

// edit changes a stored node.
func (w *world) edit(name string, change func(n *v1alpha1.AttestedNode)) {
	w.Helper()
	n := new(v1alpha1.AttestedNode)
	err := w.store.Get(w.Context(), client.ObjectKey{Name: name}, n)
	if err == nil {
		change(n)
		err = w.store.Update(w.Context(), n)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// lead has the pointer of a machine lead to a node.
func (w *world) lead(machine, node string) {
	w.Helper()
	p := &v1alpha1.AttestedMachine{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PointerName(machine)}, Spec: v1alpha1.AttestedMachineSpec{Machine: machine, NodeReference: v1alpha1.NodeReference{NodeName: node}}}
	testkit.MustDo(w.store.Create(w.Context(), p))
}

// TestEditedCertificates: a record whose certificates cannot be read is damaged, and does not pass for
// one with others.
func TestEditedCertificates(t *testing.T) {
	for _, digest := range []string{"", "00", "zz", strings.Repeat("00", 31), strings.Repeat("00", 33), strings.Repeat("0g", 32), strings.Repeat("00", 32) + "0"} {
		w := newWorld(t)
		w.bindFor(claimOf("node-1", "1"), time.Hour)
		w.edit("node-1", func(n *v1alpha1.AttestedNode) { n.Spec.Certificates[0].SPKISHA256 = digest })
		if record, err := newRegistry(t, w.store, w.clock.now).Lookup(t.Context(), "node-1"); !errors.Is(err, registry.ErrObject) {
			t.Errorf("%q: %v, %v, want ErrObject", digest, record, err)
		}
	}
}

// TestEditedPointers: a pointer counts for the machine that its node has, or is about to get while it
// is bound, and one to a node of another scope has no effect.
func TestEditedPointers(t *testing.T) {
	w := newWorld(t)
	w.bindFor(claimOf("node-1", "1"), time.Hour)
	if _, err := w.Reserve(t.Context(), claimOf("node-2", "2"), w.clock.now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node-1", "node-2"} {
		w.edit(name, func(n *v1alpha1.AttestedNode) {
			n.Spec.Pending = &v1alpha1.PendingChange{Machine: "test:next-of-" + name, Deadline: metav1.NewTime(w.clock.now().Add(time.Minute))}
		})
		w.lead("test:next-of-"+name, name)
	}
	w.lead("test:9", "node-1")
	for machine, want := range map[attest.Identity]string{"test:1": "node-1", "test:next-of-node-1": "node-1", "test:next-of-node-2": "", "test:9": ""} {
		if record, err := w.LookupMachine(t.Context(), machine); err != nil || nameOf(record) != want {
			t.Errorf("%s: got %q, %v, want %q", machine, nameOf(record), err, want)
		}
	}
	other := newScopedRegistry(t, membership.Scope{Cluster: "cluster-1", Road: attest.RoadEK, IdentityClass: "P-256"}, w.store, w.clock.now)
	if _, err := other.Reserve(t.Context(), claimOf("node-3", "9"), w.clock.now().Add(time.Minute)); err != nil {
		t.Errorf("a pointer that does not count: %v", err)
	}
}

// TestRepair: pointers that a person has changed or removed by force are written again; until
// then the machine of a bound node gets a second name.
func TestRepair(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(p *v1alpha1.AttestedMachine)
		repaired int
		damaged  bool
	}{
		"nothing":             {func(*v1alpha1.AttestedMachine) {}, 0, false},
		"to a node that went": {func(p *v1alpha1.AttestedMachine) { p.Spec.NodeName = "gone" }, 1, false},
		"to another node":     {func(p *v1alpha1.AttestedMachine) { p.Spec.NodeName = "node-2" }, 1, false},
		"to no node":          {func(p *v1alpha1.AttestedMachine) { p.Spec.NodeName = "" }, 1, false},
		"of another machine":  {func(p *v1alpha1.AttestedMachine) { p.Spec.Machine, p.Spec.NodeName = "test:9", "gone" }, 0, true},
		"gone":                {nil, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bindFor(claimOf("node-1", "1"), time.Hour)
			w.bindFor(claimOf("node-2", "2"), time.Hour)
			p := new(v1alpha1.AttestedMachine)
			testkit.MustDo(w.store.Get(t.Context(), client.ObjectKey{Name: v1alpha1.PointerName("test:1")}, p))
			change := c.change
			if change == nil {
				change = func(p *v1alpha1.AttestedMachine) { p.Finalizers = nil }
			}
			change(p)
			err := w.store.Update(t.Context(), p)
			if err == nil && c.change == nil {
				err = w.store.Delete(t.Context(), p)
			}
			if err != nil {
				t.Fatal(err)
			}
			if repaired, err := w.Repair(t.Context()); repaired != c.repaired || errors.Is(err, registry.ErrObject) != c.damaged || err != nil && !c.damaged {
				t.Errorf("repaired %d, %v, want %d", repaired, err, c.repaired)
			}
			if _, err := w.Reserve(t.Context(), claimOf("node-3", "1"), w.clock.now().Add(time.Minute)); err == nil {
				t.Error("the machine of node-1 got a second name")
			}
			if record, err := w.LookupMachine(t.Context(), "test:1"); !c.damaged && (err != nil || record == nil || record.NodeName != "node-1") {
				t.Errorf("got %v, %v", record, err)
			}
		})
	}
	t.Run("those that have none", func(t *testing.T) { // one without a Machine UID, one that rests, one that is reserved only
		w := newWorld(t)
		w.bindFor(membership.Claim{NodeName: "node-1", Machine: "test:1"}, time.Hour)
		w.bindFor(claimOf("node-2", "2"), time.Hour)
		_, released := w.Release(t.Context(), "node-2", "uid-node-2")
		_, reserved := w.Reserve(t.Context(), claimOf("node-3", "3"), w.clock.now().Add(time.Minute))
		testkit.MustDo(errors.Join(released, reserved))
		if repaired, err := w.Repair(t.Context()); repaired != 0 || err != nil {
			t.Errorf("repaired %d, %v, want none", repaired, err)
		}
	})
	t.Run("two nodes of one machine", func(t *testing.T) {
		w := newWorld(t)
		w.bindFor(claimOf("node-1", "1"), time.Hour)
		copied := new(v1alpha1.AttestedNode)
		testkit.MustDo(w.store.Get(t.Context(), client.ObjectKey{Name: "node-1"}, copied))
		copied.ObjectMeta = metav1.ObjectMeta{Name: "node-2"}
		testkit.MustDo(w.store.Create(t.Context(), copied))
		if repaired, err := w.Repair(t.Context()); repaired != 0 || !errors.Is(err, registry.ErrObject) {
			t.Errorf("repaired %d, %v, want ErrObject", repaired, err)
		}
	})
}
