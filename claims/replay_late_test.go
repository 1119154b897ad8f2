package claims

import (
	"errors"
	"testing"
	"time"
)

// TestReplayAfterTheEnd: an ID whose end has passed may have been kept and dropped, so
// that nobody can say that it is new.
func TestReplayAfterTheEnd(t *testing.T) {
	now := time.Unix(1000, 0)
	cache, err := NewMemoryReplayCache(MemoryReplayOptions{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	end := now.Add(time.Second)
	if err := cache.Use(t.Context(), "issuer", "id", end); err != nil {
		t.Fatal(err)
	}
	now = end.Add(time.Second)
	if err := cache.Use(t.Context(), "issuer", "id", end); !errors.Is(err, CheckReplay) || errors.Is(err, ErrRetry) {
		t.Errorf("after its end: %v, want %v", err, CheckReplay)
	}
	if err := cache.Use(t.Context(), "issuer", "id", now); err != nil {
		t.Errorf("another life: %v", err)
	}
}
