package tpm_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte/asn1"
)

const tagDirectoryName asn1.Tag = 0xa4

// ByTurns is a benchmark of rows that run by turns, so that all of them meet the same
// machine. It reports the median of the first one as ns-ours, and what that is as a
// multiple of each of the others' under their names. before runs before each row, its
// time uncounted.
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
