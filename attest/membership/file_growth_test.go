package membership

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
)

// joinBytes returns how many bytes a join adds to a file.
func joinBytes(t *testing.T, size int) int64 {
	t.Helper()
	path := newRegistryFile(t)
	fillFile(t, path, size)
	r := openFile(t, path, nil)
	before := testkit.Must(os.Stat(path)).Size()
	joinFile(t, r, fileClaim("a-new-node"), time.Now())
	return testkit.Must(os.Stat(path)).Size() - before
}

// A join writes as much to a registry of many records as to one of few.
func TestGrowth(t *testing.T) {
	few, many := joinBytes(t, 10), joinBytes(t, 20000)
	if few == 0 || many-few > 16 { // versions have more digits
		t.Errorf("a join writes %d bytes to 10 records and %d to 20,000", few, many)
	}
}

// The file of few records that change often stays short, and says the same after it was written anew.
func TestRewrites(t *testing.T) {
	path := newRegistryFile(t)
	r := openFile(t, path, nil)
	now := time.Now()
	bound := joinFile(t, r, fileClaim("node-1"), now)
	longest := int64(0)
	for i := range 2500 {
		bound = testkit.Must(r.Bind(t.Context(), bound, now.Add(time.Duration(2+i)*time.Hour), nil))
		longest = max(longest, testkit.Must(os.Stat(path)).Size())
		if r.store.journal.lines > 1003 {
			t.Fatalf("%d lines of one record", r.store.journal.lines)
		}
	}
	testkit.NoError(t, r.Close())
	again := openFile(t, path, nil)
	got, err := again.Lookup(t.Context(), "node-1")
	if err != nil || !got.LastEnd.Equal(bound.LastEnd) || got.Version != bound.Version {
		t.Errorf("got %+v, %v, want %+v", got, err, bound)
	}
	if len(again.store.records.byName) != 1 || longest > 1<<20 {
		t.Errorf("got %d records, and the file had %d bytes", len(again.store.records.byName), longest)
	}
}

// BenchmarkFileRegistry reports the cost of a join (two writes), of a look-up and of opening, for growing
// registries.
func BenchmarkFileRegistry(b *testing.B) {
	for _, size := range []int{1000, 10000, 100000, 1000000} {
		if size > 100000 && testing.Short() {
			continue
		}
		path := newRegistryFile(b)
		fillFile(b, path, size)
		b.Run(fmt.Sprintf("open/%d", size), func(b *testing.B) {
			for b.Loop() {
				r := testkit.Must(OpenFileRegistry(b.Context(), path, fileScope, RegistryOptions{}))
				testkit.NoError(b, r.Close())
			}
			b.ReportMetric(float64(testkit.Must(os.Stat(path)).Size())/(1<<20), "file-MiB")
		})
		r := openFile(b, path, nil)
		b.Run(fmt.Sprintf("join/%d", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				joinFile(b, r, fileClaim(fmt.Sprintf("b-%d-%d-%d", size, b.N, i)), time.Now())
			}
		})
		b.Run(fmt.Sprintf("lookup/%d", size), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				testkit.Must(r.LookupMachine(b.Context(), fileClaim(nodeOf(i%size)).Machine))
			}
		})
	}
}
