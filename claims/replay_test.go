package claims

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

func newReplay(t testing.TB, most int, now func() time.Time) *MemoryReplayCache {
	t.Helper()
	c, err := NewMemoryReplayCache(MemoryReplayOptions{MaxEntries: most, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReplay(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newReplay(t, 0, func() time.Time { return now })
	until := time.Unix(1060, 0)
	use := func(issuer, id string) error { return c.Use(t.Context(), issuer, id, until) }
	if err := use("i", "a"); err != nil {
		t.Fatal(err)
	}
	wantCheck(t, use("i", "a"), checkReplay)
	if err := use("i", "a2"); err != nil {
		t.Errorf("another ID: %v", err)
	}
	if err := use("i2", "a"); err != nil {
		t.Errorf("another issuer: %v", err)
	}
	if err := use("ia", "2"); err != nil {
		t.Errorf("other strings with the same text in a row: %v", err)
	}
	now = until.Add(time.Second - 1) // within the last second
	wantCheck(t, use("i", "a"), checkReplay)
	now = until.Add(time.Second)
	wantCheck(t, use("i", "a"), checkReplay) // which may have been dropped
	if err := c.Use(t.Context(), "i", "a", now); err != nil {
		t.Errorf("after its end: %v", err)
	}
	if held(c) != 4 {
		t.Errorf("%d entries, want 4", held(c))
	}
}

func TestReplayRefuses(t *testing.T) {
	c := newReplay(t, 0, nil)
	later := time.Now().Add(time.Hour)
	wantCheck(t, c.Use(t.Context(), "", "a", later), checkReplay)
	wantCheck(t, c.Use(t.Context(), "i", "", later), checkReplay)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := c.Use(ctx, "i", "a", later)
	wantCheck(t, err, refusal.ErrRetry)
	if !errors.Is(err, context.Canceled) || held(c) != 0 {
		t.Errorf("%v, %d entries", err, held(c))
	}
	if _, err := NewMemoryReplayCache(MemoryReplayOptions{MaxEntries: -1}); !errors.Is(err, refusal.CheckConfig) {
		t.Errorf("got %v, want %v", err, refusal.CheckConfig)
	}
}

// TestReplayBound: at the bound nothing new is taken and nothing that lives is dropped.
func TestReplayBound(t *testing.T) {
	now := time.Unix(1000, 0)
	const most = 100
	c := newReplay(t, most, func() time.Time { return now })
	id := strconv.Itoa
	for i := range most {
		if err := c.Use(t.Context(), "i", id(i), time.Unix(int64(2000+i%2), 0)); err != nil {
			t.Fatal(err)
		}
	}
	for now.Unix() <= 2000 {
		err := c.Use(t.Context(), "i", "one more", time.Unix(3000, 0))
		wantCheck(t, err, checkReplayFull)
		if !errors.Is(err, refusal.ErrRetry) || held(c) != most {
			t.Fatalf("%v, %d entries", err, held(c))
		}
		wantCheck(t, c.Use(t.Context(), "i", id(7), time.Unix(3000, 0)), checkReplay)
		now = now.Add(100 * time.Second)
	}
	now = time.Unix(2001, 0) // half of them have ended
	for i := range most / 2 {
		if err := c.Use(t.Context(), "i", "more "+id(i), time.Unix(3000, 0)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	wantCheck(t, c.Use(t.Context(), "i", "one more", time.Unix(3000, 0)), checkReplayFull)
	wantCheck(t, c.Use(t.Context(), "i", id(7), time.Unix(3000, 0)), checkReplay)
	now = time.Unix(3001, 0)
	if err := c.Use(t.Context(), "i", "one more", time.Unix(4000, 0)); err != nil || held(c) != 1 {
		t.Errorf("%v, %d entries, want 1", err, held(c))
	}
}

// TestReplayOnce: of many that present one token at one time, one is let in.
func TestReplayOnce(t *testing.T) {
	c := newReplay(t, 0, nil)
	later := time.Now().Add(time.Hour)
	const tokens, thieves = 200, 8
	var in [tokens]atomic.Int32
	var wait sync.WaitGroup
	for range thieves {
		wait.Go(func() {
			for i := range in {
				if err := c.Use(t.Context(), "i", strconv.Itoa(i), later); err == nil {
					in[i].Add(1)
				} else if !errors.Is(err, checkReplay) {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	for i := range in {
		if n := in[i].Load(); n != 1 {
			t.Errorf("token %d was let in %d times", i, n)
		}
	}
}

// TestReplayBoundConcurrent: the bound holds to the entry under concurrent calls.
func TestReplayBoundConcurrent(t *testing.T) {
	const most, workers, each = 500, 8, 200
	c := newReplay(t, most, nil)
	later := time.Now().Add(time.Hour)
	var in atomic.Int32
	var wait sync.WaitGroup
	for worker := range workers {
		wait.Go(func() {
			for i := range each {
				switch err := c.Use(t.Context(), "i", fmt.Sprint(worker, i), later); {
				case err == nil:
					in.Add(1)
				case !errors.Is(err, checkReplayFull):
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if in.Load() != most || held(c) != most {
		t.Errorf("%d let in, %d entries, want %d", in.Load(), held(c), most)
	}
}

// TestReplayMemory fills the cache to its default bound, with IDs of any length.
func TestReplayMemory(t *testing.T) {
	// Filling the default takes seconds. A sixteenth of it fills its maps as far:
	// they grow by doubling.
	most := defaultMaxReplayEntries / 16
	if os.Getenv("NODEATTEST_LONG") == "1" {
		most = defaultMaxReplayEntries
	}
	now := time.Unix(1000, 0)
	c := newReplay(t, most, func() time.Time { return now })
	long := strings.Repeat("x", 100)
	before := heap()
	for i := range most {
		if err := c.Use(t.Context(), worldIssuer, long+strconv.Itoa(i), time.Unix(2000, 0)); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	bytes := float64(heap()-before) / float64(most)
	t.Logf("%d entries, %.1f bytes each", held(c), bytes)
	if bytes > 64 {
		t.Errorf("%.1f bytes an entry, at most 64 are promised", bytes)
	}
	wantCheck(t, c.Use(t.Context(), worldIssuer, "one more", time.Unix(2000, 0)), checkReplayFull)
	wantCheck(t, c.Use(t.Context(), worldIssuer, long+"0", time.Unix(2000, 0)), checkReplay)

	// A second generation finds its room where the first was.
	now = time.Unix(2001, 0)
	for i := range most {
		if err := c.Use(t.Context(), worldIssuer, "again "+strconv.Itoa(i), time.Unix(3000, 0)); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	if bytes := float64(heap()-before) / float64(most); bytes > 64 {
		t.Errorf("%.1f bytes an entry in the second generation", bytes)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestReplayAllocations(t *testing.T) {
	c := newReplay(t, 0, nil)
	later := time.Now().Add(time.Hour)
	if err := c.Use(t.Context(), worldIssuer, "warm", later); err != nil {
		t.Fatal(err)
	}
	id := "3f2f4f2e-5ab6-4a92-a0a6-7a6b1c4d9f10"
	if n := testing.AllocsPerRun(100, func() {
		clear(c.entries)
		if err := c.Use(t.Context(), worldIssuer, id, later); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// FuzzReplay holds the cache against one that keeps everything. Each step takes three
// bytes: an ID, its life, and how much time passes.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{1, 9, 0, 1, 9, 0, 2, 9, 20, 1, 9, 0})
	f.Add([]byte("many different bytes make many different steps of one cache"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		const most = 8
		now := time.Unix(1_000_000, 0)
		c := newReplay(t, most, func() time.Time { return now })
		ends := map[string]int64{}
		for ; len(steps) >= 3; steps = steps[3:] {
			id, end := string(rune('a'+steps[0]%16)), now.Unix()+int64(steps[1]%32)
			alive := 0
			for _, e := range ends {
				if e >= now.Unix() {
					alive++
				}
			}
			last, known := ends[id]
			err := c.Use(t.Context(), "i", id, time.Unix(end, 0))
			switch {
			case known && last >= now.Unix():
				wantCheck(t, err, checkReplay)
			case errors.Is(err, checkReplayFull):
				if alive < most && !swept(c, now) {
					t.Fatalf("full with %d of %d alive", alive, most)
				}
			case err != nil:
				t.Fatal(err)
			default:
				ends[id] = end
			}
			if held(c) > most {
				t.Fatalf("%d entries", held(c))
			}
			now = now.Add(time.Duration(binary.LittleEndian.Uint16([]byte{steps[2], 0})%8) * time.Second)
		}
	})
}

// swept reports whether the cache has looked for room in this very second already, after
// which it may say that it is full for the rest of it.
func swept(c *MemoryReplayCache, now time.Time) bool { return c.swept == now.Unix() }

func BenchmarkReplay(b *testing.B) {
	later := time.Now().Add(time.Hour)
	c := newReplay(b, 1<<30, nil)
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		id := strconv.FormatInt(n.Add(1), 10) + "-"
		var buf []byte
		for i := int64(0); pb.Next(); i++ {
			buf = strconv.AppendInt(append(buf[:0], id...), i, 10)
			if err := c.Use(b.Context(), worldIssuer, string(buf), later); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestReplayClockForthAndBack: a clock that jumps ahead makes the cache drop entries, and
// when it is set right again none of them is taken a second time.
func TestReplayClockForthAndBack(t *testing.T) {
	const most = 256
	start := time.Unix(1_700_000_000, 0)
	now := start
	c := newReplay(t, most, func() time.Time { return now })
	until := start.Add(10 * time.Minute)
	use := func(id string, until time.Time) error { return c.Use(t.Context(), "i", id, until) }
	for i := range most {
		if err := use(strconv.Itoa(i), until); err != nil {
			t.Fatal(err)
		}
	}
	now = start.Add(11 * time.Minute)
	if err := use("ahead", now.Add(time.Hour)); err != nil { // in a full cache
		t.Fatal(err)
	}
	if held(c) != 1 {
		t.Fatalf("%d entries, want that nothing but the last is kept", held(c))
	}
	now = start.Add(time.Second)
	for i := range most {
		wantCheck(t, use(strconv.Itoa(i), until), checkReplay)
	}
	// A token that ends after all that was dropped is surely new.
	if err := use("new", until.Add(time.Second)); err != nil {
		t.Error(err)
	}
	wantCheck(t, use("new", until.Add(time.Second)), checkReplay)
}

// held returns how many entries a cache holds, ended ones included.
func held(c *MemoryReplayCache) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}
