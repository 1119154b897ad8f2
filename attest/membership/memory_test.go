package membership

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
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
	r, err := NewRegistry(testScope, store, RegistryOptions{Now: func() time.Time { return at }})
	if err != nil {
		t.Fatal(err)
	}
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

// Each call touches a number of records that does not depend on how many there are: it
// is counted, not timed.
func TestMemoryTouchesFewRecords(t *testing.T) {
	const most = 3 + 2 + 2*sweepSize // what stands around a claim, what is replaced, what is swept
	counts := map[string][]int{}
	for _, size := range []int{10, 1000, 20000} {
		r, store, at := memoryOf(t, size)
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
		// Half of them go at once: a write still takes a few away.
		for i := range size / 2 {
			if _, err := r.Release(ctx, "node-"+strconv.Itoa(i), "uid-"+strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		*at = at.Add(2 * time.Hour)
		store.touched = 0
		if _, err := r.Reserve(ctx, testClaim(size+1), at.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		counts["Reserve with many ended"] = append(counts["Reserve with many ended"], store.touched)
	}
	for call, n := range counts {
		if n[0] == 0 || n[0] != n[1] || n[1] != n[2] || n[2] > most {
			t.Errorf("%s touches %v records of 10, 1000 and 20000, want one small number", call, n)
		}
	}
}

// What has come to its end goes with later writes, whether anybody asks for it or not.
func TestMemoryDropsWhatEnded(t *testing.T) {
	const records = 100
	r, store, at := memoryOf(t, records)
	for i := range records {
		if _, err := r.Release(t.Context(), "node-"+strconv.Itoa(i), "uid-"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(store.names) != records || len(store.ends) != records {
		t.Fatalf("%d records rest, %d ends, want %d", len(store.names), len(store.ends), records)
	}
	*at = at.Add(time.Hour + time.Second)
	const writes = records / sweepSize
	for i := range writes {
		joinMemory(t, r, Claim{NodeName: fmt.Sprintf("new-%d", i), Machine: attest.Identity(fmt.Sprintf("test:new-%d", i))}, *at)
	}
	if len(store.names) != writes || len(store.machines) != writes || len(store.uids) != 0 || len(store.ends) != 0 {
		t.Errorf("%d names, %d machines, %d UIDs and %d ends are left, want those of %d joins", len(store.names), len(store.machines), len(store.uids), len(store.ends), writes)
	}
}

// What is handed out is the caller's: a reader who changes a record's certificates changes nothing.
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

// What ends first goes first, in whatever order it was made.
func TestMemoryEndsInOrder(t *testing.T) {
	r, store, at := memoryOf(t, 0)
	const records = 50
	for i := range records {
		seconds := time.Duration((i*37)%records + 1) // each of 1 to 50 once
		if _, err := r.Reserve(t.Context(), testClaim(i), at.Add(seconds*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	*at = at.Add(sweepSize * time.Second)
	joinMemory(t, r, testClaim(records), *at)
	if want := records - sweepSize + 1; len(store.names) != want {
		t.Errorf("%d records are left, want %d", len(store.names), want)
	}
	for _, e := range store.names {
		if !e.Live(*at) {
			t.Errorf("%s is left", e.NodeName)
		}
	}
}

// A renewed reservation has one end, however often it is renewed.
func TestMemoryKeepsOneEndARecord(t *testing.T) {
	r, store, at := memoryOf(t, 0)
	for i := range 1000 {
		if _, err := r.Reserve(t.Context(), testClaim(1), at.Add(time.Duration(1+i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if len(store.ends) != 1 {
		t.Errorf("%d ends of one record", len(store.ends))
	}
}

// A list of a registry is whole, in order, and without what ended, over several pieces.
func TestRecordsInPieces(t *testing.T) {
	r, _, at := memoryOf(t, 600)
	if _, err := r.Reserve(t.Context(), testClaim(9999), at.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
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
			cancel() // what has been read already still comes
		}
		if err != nil && (!errors.Is(err, context.Canceled) || record != nil || n != 2*listSize+1) {
			t.Errorf("a context that ends: got %v, %v as number %d", record, err, n)
		}
	}
	if n != 2*listSize+1 {
		t.Errorf("a context that ends: got %d records", n-1)
	}
}

func BenchmarkMemoryRegistry(b *testing.B) {
	for _, size := range []int{1000, 16000, 100000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			r, _, at := memoryOf(b, size)
			for i := 0; b.Loop(); i++ {
				joinMemory(b, r, testClaim(size+i), *at)
			}
		})
	}
}

// Whoever gets a machine or a Machine UID whose reservation has ended takes it for good: for a
// clock that is a moment behind, the reservation is over too.
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
				var err error
				if last, err = r.Reserve(t.Context(), testClaim(10+i), at.Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
			}
			*at = at.Add(61 * time.Second)
			if err := take(r, &last.Claim); err != nil {
				t.Fatal(err)
			}
			*at = at.Add(-3 * time.Second)
			_, err := r.Bind(t.Context(), last, at.Add(time.Hour), nil)
			if taken := name != "nothing"; taken != errors.Is(err, CheckRegistryConflict) || !taken && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}
