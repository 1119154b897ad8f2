package tpmlab

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// ExpectCheck fails unless err is nil for "", or a *refusal.Error of that very check.
func ExpectCheck(t *testing.T, err error, want refusal.Check) {
	t.Helper()
	if want == "" {
		testkit.NoError(t, err)
		return
	}
	var e *refusal.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Check != want {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Got == "" && e.Want == "" && e.Err == nil {
		t.Errorf("%v does not say why", err)
	}
}

// Corpus is a file of the collection of real-world data that the environment names.
func Corpus(t testing.TB, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(CorpusDir(t), filepath.Join(path...)))
	testkit.NoError(t, err)
	return b
}

// CorpusDir is that directory; the test skips without one.
func CorpusDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("NODEATTEST_CORPUS")
	if dir == "" {
		t.Skip("NODEATTEST_CORPUS is not set: it names a directory of recorded TPM statements")
	}
	return dir
}

// ByTurns is a benchmark of rows that run by turns, so that all of them meet the same machine. It
// reports the median of the first one as ns-ours, and its multiple of each other row's median under
// that row's name. before runs before each row, its time uncounted.
func ByTurns(b *testing.B, before func(), names []string, rows ...func()) {
	times := make([][]float64, len(rows))
	for b.Loop() {
		for _, n := range rand.Perm(len(rows)) { // what runs before a row warms its caches
			before()
			start := time.Now()
			rows[n]()
			times[n] = append(times[n], float64(time.Since(start)))
		}
	}
	median := func(n int) float64 {
		slices.Sort(times[n])
		return times[n][len(times[n])/2]
	}
	ours := median(0)
	b.ReportMetric(ours, "ns-ours")
	for n, name := range names {
		b.ReportMetric(ours/median(n+1), name)
	}
	b.ReportMetric(0, "ns/op")
}
