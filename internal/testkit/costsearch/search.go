// Package costsearch searches for the input that costs its reader most, compared with a good input
// of its size. It finds repeatable elements in an input's bytes, without a list of attacks.
package costsearch

import (
	"cmp"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
)

// The costs of an input: bytes of memory, and counted work.
const (
	Memory = iota
	Counted
	goals
)

var goalNames = [goals]string{"memory", "counted work"}

// Search is a search among inputs, each of which T describes.
type Search[T any] struct {
	// Start are the inputs that the search begins with.
	Start []T
	// Change makes another input of one, which stays as it is.
	Change func(r *rand.Rand, from T) T
	// Write makes the bytes of an input; nil if it cannot be written.
	Write func(T) []byte
	// Read reads the bytes, remembering nothing of earlier calls, and returns the counted work. An
	// error is a refusal.
	Read func([]byte) (work int, err error)
	// Good is a good input of about so many bytes, as far as there is room for them, in which
	// nothing repeats. Largest is the size of the largest; 0 if there is only one.
	Good    func(class, size int) []byte
	Largest int
	// Class returns an input's class, 0 to Classes-1: inputs are compared by class and size; nil
	// for one class.
	Class   func(T) int
	Classes int

	good []line
}

// line is what good inputs of one class cost, by their size. A byte more costs at least one of
// memory and of work, also where no good input is larger.
type line struct {
	at           float64
	value, slope [goals]float64
}

// tried is an input with its cost.
type tried[T any] struct {
	input T
	data  []byte
	err   error
	cost  [goals]float64
}

// Run tries so many inputs. It fails t for one that costs more than most times as much memory, or
// counted work, as a good one of its size that is read for the first time. The variable SEARCH sets
// how many are tried, and SEED where the search begins; then the costliest inputs are logged.
func (s *Search[T]) Run(t *testing.T, turns int, most [goals]float64) {
	t.Helper()
	seed, verbose := uint64(1), false
	if n, err := strconv.Atoi(os.Getenv("SEARCH")); err == nil {
		turns, verbose = n, true
	}
	if n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil {
		seed = n
	}
	for goal, best := range s.best(t, seed, turns) {
		c := best[0]
		for range 8 { // with the race detector, a sync.Pool forgets one element of four at random
			s.measure(c)
		}
		for one, limit := range most {
			if x := s.excess(c, one); x > limit {
				t.Errorf("%.1f times the %s of a good one: %d bytes, class %d, %v", x, goalNames[one], len(c.data), s.classOf(c), c.err)
			}
		}
		if verbose {
			t.Logf("most %s: %.1f x memory (%.0f KiB), %.1f x counted work of a good one: %d bytes, class %d, %.200v", goalNames[goal],
				s.excess(c, Memory), c.cost[Memory]/1024, s.excess(c, Counted), len(c.data), s.classOf(c), c.err)
		}
	}
}

// best are the few inputs that cost most by each goal, the costliest first: these are changed again.
func (s *Search[T]) best(t testing.TB, seed uint64, turns int) (kept [goals][]*tried[T]) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	s.good = nil
	for class := range max(s.Classes, 1) {
		s.good = append(s.good, s.lineOf(t, class))
	}
	keep := func(input T) {
		data := s.Write(input)
		if data == nil {
			return
		}
		c := s.try(input, data)
		for goal := range kept {
			if len(kept[goal]) > 0 && s.excess(c, goal) > s.excess(kept[goal][0], goal) {
				s.measure(c) // once more, before others are held against it
			}
			all := append(kept[goal], c)
			slices.SortStableFunc(all, func(a, b *tried[T]) int { return cmp.Compare(s.excess(b, goal), s.excess(a, goal)) })
			kept[goal] = all[:min(len(all), 6)]
		}
	}
	for _, input := range s.Start {
		keep(input)
	}
	for range turns {
		from := kept[min(r.IntN(3), Counted)] // costly work takes more tries
		keep(s.Change(r, from[r.IntN(len(from))].input))
	}
	return kept
}

// lineOf measures the smallest and the largest good input of a class.
func (s *Search[T]) lineOf(t testing.TB, class int) line {
	t.Helper()
	var none T
	small, large := s.try(none, s.Good(class, 0)), s.try(none, s.Good(class, s.Largest))
	for _, c := range []*tried[T]{small, large} {
		if c.err != nil {
			t.Fatalf("a good input of %d bytes: %v", len(c.data), c.err)
		}
	}
	l := line{at: float64(len(small.data)), value: small.cost, slope: [goals]float64{Memory: 1, Counted: 1}}
	if more := len(large.data) - len(small.data); more > 0 {
		for goal := range goals {
			l.slope[goal] = max(l.slope[goal], (large.cost[goal]-small.cost[goal])/float64(more))
		}
	}
	return l
}

// excess is an input's cost as a multiple of a good one's of its class and size.
func (s *Search[T]) excess(c *tried[T], goal int) float64 {
	good := s.good[s.classOf(c)]
	return c.cost[goal] / (good.value[goal] + good.slope[goal]*max(0, float64(len(c.data))-good.at))
}

func (s *Search[T]) classOf(c *tried[T]) int {
	if s.Class == nil {
		return 0
	}
	return s.Class(c.input)
}

func (s *Search[T]) try(input T, data []byte) *tried[T] {
	c := &tried[T]{input: input, data: data, cost: [goals]float64{Memory: math.Inf(1)}}
	s.measure(c)
	return c
}

// measure reads an input and records its cost: of memory, the minimum over all readings.
func (s *Search[T]) measure(c *tried[T]) {
	for range 2 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		work, err := s.Read(c.data)
		runtime.ReadMemStats(&after)
		c.err, c.cost[Counted] = err, float64(work)
		c.cost[Memory] = min(c.cost[Memory], float64(after.TotalAlloc-before.TotalAlloc))
	}
}
