package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

func testClaim(i int) Claim {
	n := strconv.Itoa(i)
	return Claim{NodeName: "node-" + n, Machine: attest.Identity("test:" + n), MachineUID: "uid-" + n, ProviderID: "test://" + n}
}

// memoryOf is a registry with that many bound records, and its store and clock.
func memoryOf(t testing.TB, records int) (Registry, *memoryStore, *time.Time) {
	t.Helper()
	at := testTime()
	store := newMemoryStore()
	r := testkit.Must(NewRegistry(testScope, store, RegistryOptions{Now: func() time.Time { return at }}))
	for i := range records {
		joinMemory(t, r, testClaim(i), at)
	}
	return r, store, &at
}

func joinMemory(t testing.TB, r Registry, c Claim, at time.Time) *Record {
	t.Helper()
	record, err := r.Reserve(t.Context(), c, at.Add(time.Minute))
	if err == nil {
		record, err = r.Bind(t.Context(), record, at.Add(time.Hour), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// counting is a store that counts the records that are asked for, found and changed.
type counting struct {
	Store
	Tx
	touched int
}

func (c *counting) View(ctx context.Context, f func(Tx) error) error {
	return c.Store.View(ctx, func(r Tx) error { c.Tx = r; return f(c) })
}

func (c *counting) Update(ctx context.Context, f func(Tx) error) error {
	return c.Store.Update(ctx, func(w Tx) error { c.Tx = w; return f(c) })
}

func (c *counting) ByName(name string) (*Record, error) { c.touched++; return c.Tx.ByName(name) }

func (c *counting) ByMachine(machine attest.Identity) (*Record, error) {
	c.touched++
	return c.Tx.ByMachine(machine)
}

func (c *counting) ByMachineUID(uid string) (*Record, error) {
	c.touched++
	return c.Tx.ByMachineUID(uid)
}

func (c *counting) Put(r Record) (*Record, error) { c.touched++; return c.Tx.Put(r) }

func (c *counting) Drop(name string) error { c.touched++; return c.Tx.Drop(name) }

func (c *counting) Due(now time.Time, limit int) ([]string, error) {
	names, err := c.Tx.Due(now, limit)
	c.touched += len(names)
	return names, err
}

// Each call touches a number of records that does not depend on how many there are: it
// is counted, not timed.
func TestCallsTouchFewRecords(t *testing.T) {
	const most = 3 + 2 + 2*sweepSize // records around a claim, replaced records, swept records
	counts := map[string][]int{}
	for _, size := range []int{10, 100, 1000} {
		_, memory, at := memoryOf(t, size)
		store := &counting{Store: memory}
		r := testkit.Must(NewRegistry(testScope, store, RegistryOptions{Now: func() time.Time { return *at }}))
		ctx, next := t.Context(), testClaim(size)
		var record *Record
		for _, call := range []struct {
			name string
			do   func() error
		}{
			{"Reserve", func() (err error) { record, err = r.Reserve(ctx, next, at.Add(time.Minute)); return err }},
			{"Bind", func() (err error) { record, err = r.Bind(ctx, record, at.Add(time.Hour), nil); return err }},
			{"Bind again", func() (err error) { record, err = r.Bind(ctx, record, at.Add(2*time.Hour), nil); return err }},
			{"Rebind", func() (err error) { record, err = r.Rebind(ctx, record, "test:spare"); return err }},
			{"Adopt", func() (err error) { record, err = r.Adopt(ctx, record, "uid-spare"); return err }},
			{"Lookup", func() error { _, err := r.Lookup(ctx, "node-3"); return err }},
			{"LookupMachine", func() error { _, err := r.LookupMachine(ctx, "test:3"); return err }},
			{"LookupMachineUID", func() error { _, err := r.LookupMachineUID(ctx, "uid-3"); return err }},
			{"Release", func() error { _, err := r.Release(ctx, record.NodeName, "uid-spare"); return err }},
		} {
			store.touched = 0
			if err := call.do(); err != nil {
				t.Fatalf("%s: %v", call.name, err)
			}
			counts[call.name] = append(counts[call.name], store.touched)
		}
		// Half of them end at the same time; each write still sweeps only a few.
		for i := range size / 2 {
			testkit.Must(r.Release(ctx, "node-"+strconv.Itoa(i), "uid-"+strconv.Itoa(i)))
		}
		*at = at.Add(2 * time.Hour)
		store.touched = 0
		testkit.Must(r.Reserve(ctx, testClaim(size+1), at.Add(time.Minute)))
		counts["Reserve with many ended"] = append(counts["Reserve with many ended"], store.touched)
	}
	for call, n := range counts {
		if n[0] == 0 || n[0] != n[1] || n[1] != n[2] || n[2] > most {
			t.Errorf("%s touches %v records of 10, 100 and 1000, want one small number", call, n)
		}
	}
}

// Ended records are removed by later writes, without a look-up of them.
func TestMemoryDropsWhatEnded(t *testing.T) {
	const records = 100
	r, store, at := memoryOf(t, records)
	for i := range records {
		testkit.Must(r.Release(t.Context(), "node-"+strconv.Itoa(i), "uid-"+strconv.Itoa(i)))
	}
	if len(store.records.byName) != records {
		t.Fatalf("%d records rest, want %d", len(store.records.byName), records)
	}
	*at = at.Add(time.Hour + time.Second)
	const writes = records / sweepSize
	for i := range writes {
		joinMemory(t, r, Claim{NodeName: fmt.Sprintf("new-%d", i), Machine: attest.Identity(fmt.Sprintf("test:new-%d", i))}, *at)
	}
	if len(store.records.byName) != writes || slices.ContainsFunc(store.records.byName, func(r *Record) bool { return r.State != StateBound }) {
		t.Errorf("%d records are left, want the records of %d joins", len(store.records.byName), writes)
	}
}

// Returned records are copies: changing the certificates of one changes nothing.
func TestMemoryHandsOutCopies(t *testing.T) {
	r, _, at := memoryOf(t, 1)
	c, end := testClaim(0), at.Add(time.Hour)
	bound, err := r.Lookup(t.Context(), c.NodeName)
	if err == nil {
		bound, err = r.Bind(t.Context(), bound, end, &csr.IssuedRecord{CredentialID: "a", NodeName: c.NodeName, Machine: string(c.Machine), MachineUID: c.MachineUID, NotAfter: end})
	}
	if err != nil {
		t.Fatal(err)
	}
	bound.Issued[0].CredentialID = "changed"
	for record, err := range r.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		record.Issued[0].CredentialID = "changed"
	}
	for _, find := range []func() (*Record, error){
		func() (*Record, error) { return r.LookupMachineUID(t.Context(), c.MachineUID) },
		func() (*Record, error) { return r.LookupMachine(t.Context(), c.Machine) },
		func() (*Record, error) { return r.Lookup(t.Context(), c.NodeName) },
	} {
		record, err := find()
		if err != nil || record.Issued[0].CredentialID != "a" {
			t.Errorf("got %+v, %v", record, err)
		}
		record.Issued[0].CredentialID = "changed"
	}
}

// A list of a registry is whole, in order, and without what ended, over several pieces.
func TestRecordsInPieces(t *testing.T) {
	r, _, at := memoryOf(t, 600)
	testkit.Must(r.Reserve(t.Context(), testClaim(9999), at.Add(time.Minute)))
	*at = at.Add(time.Minute)
	got := recordsOf(t, r)
	for i := 1; i < len(got); i++ {
		if got[i-1].NodeName >= got[i].NodeName {
			t.Fatalf("%s comes before %s", got[i-1].NodeName, got[i].NodeName)
		}
	}
	if len(got) != 600 {
		t.Errorf("got %d records, want 600", len(got))
	}
	over, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for record, err := range r.Records(over) {
		if n++; n == 300 {
			cancel() // records that were read already are still yielded
		}
		if err != nil && (!errors.Is(err, context.Canceled) || record != nil || n != 2*listSize+1) {
			t.Errorf("a context that ends: got %v, %v as number %d", record, err, n)
		}
	}
	if n != 2*listSize+1 {
		t.Errorf("a context that ends: got %d records", n-1)
	}
}

// A record that takes over a machine or Machine UID removes its ended reservation: a clock that is behind
// does not find it again.
func TestEndedReservationIsNotBoundByAClockBehind(t *testing.T) {
	const reserved = 3 * sweepSize
	for name, take := range map[string]func(r Registry, c *Claim) error{
		"machine": func(r Registry, c *Claim) error {
			_, err := r.Reserve(t.Context(), Claim{NodeName: "other", Machine: c.Machine, MachineUID: "uid-other"}, testTime().Add(2*time.Minute))
			return err
		},
		"Machine UID": func(r Registry, c *Claim) error {
			_, err := r.Reserve(t.Context(), Claim{NodeName: "other", Machine: "test:other", MachineUID: c.MachineUID}, testTime().Add(2*time.Minute))
			return err
		},
		"rebound machine": func(r Registry, c *Claim) error {
			bound, err := r.Lookup(t.Context(), "node-0")
			if err == nil {
				_, err = r.Rebind(t.Context(), bound, c.Machine)
			}
			return err
		},
		"adopted Machine UID": func(r Registry, c *Claim) error {
			bound, err := r.Lookup(t.Context(), "node-0")
			if err == nil {
				_, err = r.Adopt(t.Context(), bound, c.MachineUID)
			}
			return err
		},
		"nothing": func(Registry, *Claim) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r, _, at := memoryOf(t, 1)
			var last *Record // a sweep takes it last
			for i := range reserved {
				last = testkit.Must(r.Reserve(t.Context(), testClaim(10+i), at.Add(time.Minute)))
			}
			*at = at.Add(61 * time.Second)
			testkit.NoError(t, take(r, &last.Claim))
			*at = at.Add(-3 * time.Second)
			_, err := r.Bind(t.Context(), last, at.Add(time.Hour), nil)
			if taken := name != "nothing"; taken != errors.Is(err, CheckRegistryConflict) || !taken && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}
