package boltregistry

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// fillWith binds records up to that many, in eight batches: a sync a record would take
// hours, and each batch writes most pages anew.
func fillWith(t testing.TB, r *Registry, from, to int) {
	t.Helper()
	batch := max(1, (to-from)/8)
	for first := from; first < to; first += batch {
		testkit.NoError(t, r.file.Update(t.Context(), func(w membership.Tx) error {
			for i := first; i < min(first+batch, to); i++ {
				record := membership.Record{Claim: claim(nodeOf(i)), State: membership.StateBound, LastEnd: time.Now().Add(time.Hour).Truncate(time.Second)}
				if _, err := w.Put(record); err != nil {
					return err
				}
			}
			return nil
		}))
	}
}

// nodeOf spreads the names, as names of machines are spread.
func nodeOf(i int) string {
	return "node-" + strconv.FormatUint(uint64(i)*0x9e3779b97f4a7c15, 36)
}

// depth is the number of pages from the root of the deepest index to a record.
func depth(t testing.TB, db *bbolt.DB) int {
	t.Helper()
	deepest := 0
	testkit.NoError(t, db.View(func(b *bbolt.Tx) error {
		for _, name := range buckets {
			deepest = max(deepest, b.Bucket(name).Stats().Depth)
		}
		return nil
	}))
	return deepest
}

// pageCosts is what some calls cost: a cursor reads one page of each level of a tree. Each
// write writes the list of free pages too, which is as long as the largest transaction
// left it: here the batches that fill the registry.
type pageCosts struct{ read, written, freelist float64 }

func pagesOf(t testing.TB, r *Registry, calls int, do func(i int)) pageCosts {
	t.Helper()
	levels := depth(t, r.file.db)
	before := r.file.db.Stats()
	for i := range calls {
		do(i)
	}
	after := r.file.db.Stats()
	n := float64(calls)
	written := float64(after.TxStats.GetPageCount()-before.TxStats.GetPageCount()) / n
	list := 0.0
	if written > 0 {
		list = 3 * float64(1+max(before.FreelistInuse, after.FreelistInuse)/os.Getpagesize())
	}
	return pageCosts{
		read:     float64((after.TxStats.GetCursorCount()-before.TxStats.GetCursorCount())*int64(levels)) / n,
		written:  max(0, written-list),
		freelist: list,
	}
}

// growth is the cost of a join and of a look-up in a registry of that many records.
func growth(t testing.TB, r *Registry, size int) (joins, lookups pageCosts) {
	const calls = 20
	joins = pagesOf(t, r, calls, func(i int) { join(t, r, claim(fmt.Sprintf("new-%d-%d", size, i)), time.Now()) })
	lookups = pagesOf(t, r, calls, func(i int) {
		if got, err := r.LookupMachine(t.Context(), claim(nodeOf(i)).Machine); err != nil || got == nil {
			t.Fatalf("got %v, %v", got, err)
		}
	})
	return joins, lookups
}

// A hundred times the records cost at most two levels more in each tree.
func TestGrowth(t *testing.T) {
	r := open(t, newFile(t), nil)
	fillWith(t, r, 0, 1000)
	fewLevels := depth(t, r.file.db)
	fewJoins, fewLookups := growth(t, r, 1000)
	fillWith(t, r, 1000, 100000)
	manyLevels := depth(t, r.file.db)
	manyJoins, manyLookups := growth(t, r, 100000)
	t.Logf("1000 records: %d levels, join %+v, look-up %+v; 100000: %d levels, join %+v, look-up %+v",
		fewLevels, fewJoins, fewLookups, manyLevels, manyJoins, manyLookups)
	if manyLevels > fewLevels+2 {
		t.Errorf("%d levels became %d", fewLevels, manyLevels)
	}
	if most := float64(manyLevels) / float64(fewLevels); manyJoins.read > 1.2*most*fewJoins.read || manyLookups.read > 1.2*most*fewLookups.read {
		t.Errorf("a join reads %.1f pages of 1000 records and %.1f of 100000, a look-up %.1f and %.1f", fewJoins.read, manyJoins.read, fewLookups.read, manyLookups.read)
	}
	if manyJoins.written > fewJoins.written+3*3*4 { // three writes, in each four trees and up to two levels and a split more
		t.Errorf("a join writes %.1f pages of 1000 records and %.1f of 100000", fewJoins.written, manyJoins.written)
	}
	if manyLookups.written != 0 {
		t.Errorf("a look-up writes %.1f pages", manyLookups.written)
	}
	const all, bound = 100000 + 2*20, 4 << 20
	if listed, most := listInMemory(t, r, false); listed != all || most > bound {
		t.Errorf("a list had %d records and held %d KiB", listed, most>>10)
	}
	if listed, most := listInMemory(t, r, true); listed != all || most < 2*bound {
		t.Errorf("a list of %d records that are kept held %d KiB: the test proves nothing", listed, most>>10)
	}
}

// listInMemory lists a registry, and returns how many records there are and the most memory
// that was held meanwhile, in bytes.
func listInMemory(t testing.TB, r *Registry, keep bool) (listed int, most uint64) {
	t.Helper()
	var kept []*membership.Record
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	for record, err := range r.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if keep {
			kept = append(kept, record)
		}
		if listed++; listed%10000 == 0 {
			now := inUse()
			most = max(most, now-min(before, now))
		}
	}
	runtime.KeepAlive(kept)
	return listed, most
}

// BenchmarkRegistry reports the cost of a join (three writes), of a look-up and of opening, for growing
// registries.
func BenchmarkRegistry(b *testing.B) {
	path := newFile(b)
	r := open(b, path, nil)
	filled := 0
	for _, size := range []int{1000, 10000, 100000, 1000000} {
		if size > 100000 && testing.Short() {
			continue
		}
		fillWith(b, r, filled, size)
		filled = size
		joins, lookups := growth(b, r, size)
		b.Run(fmt.Sprintf("join/%d", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				join(b, r, claim(fmt.Sprintf("b-%d-%d-%d", size, b.N, i)), time.Now())
			}
			b.ReportMetric(joins.read, "pages-read/op")
			b.ReportMetric(joins.written, "pages-written/op")
			b.ReportMetric(joins.freelist, "freelist-pages/op")
		})
		b.Run(fmt.Sprintf("lookup/%d", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				testkit.Must(r.LookupMachine(b.Context(), claim(nodeOf(i%size)).Machine))
			}
			b.ReportMetric(lookups.read, "pages-read/op")
		})
		testkit.NoError(b, r.Close())
		b.Run(fmt.Sprintf("open/%d", size), func(b *testing.B) {
			for b.Loop() {
				o := testkit.Must(Open(b.Context(), path, testScope, membership.RegistryOptions{}))
				testkit.NoError(b, o.Close())
			}
			if info, err := os.Stat(path); err == nil {
				b.ReportMetric(float64(info.Size())/(1<<20), "file-MiB")
			}
		})
		r = open(b, path, nil)
	}
}
