package claims

import (
	"strconv"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
)

// TestReplayClockForthAndBack: a clock that jumps ahead makes the cache drop entries, and
// when it is set right again none of them is taken a second time.
func TestReplayClockForthAndBack(t *testing.T) {
	const most = 256 // some in each shard
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
	if c.Len() != 1 {
		t.Fatalf("%d entries, want that nothing but the last is kept", c.Len())
	}
	now = start.Add(time.Second)
	for i := range most {
		wantCheck(t, use(strconv.Itoa(i), until), CheckReplay)
	}
	// A token that ends after all that was dropped is surely new.
	if err := use("new", until.Add(time.Second)); err != nil {
		t.Error(err)
	}
	wantCheck(t, use("new", until.Add(time.Second)), CheckReplay)
}

// TestReplayZero: a cache that nobody made holds nothing, and says so.
func TestReplayZero(t *testing.T) {
	for _, c := range []*MemoryReplayCache{nil, {}} {
		wantCheck(t, c.Use(t.Context(), "i", "a", time.Now().Add(time.Hour)), refusal.CheckConfig)
	}
}
