package attest

import (
	"errors"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/internal/message"
	"github.com/nodeattest/nodeattest/refusal"
)

// A ring that has not been read is good for making a verifier, and for nothing else
// until it has been read.
func TestUnreadKeyRing(t *testing.T) {
	ring, key := new(KeyRing), NewRingKey(ringTime)
	check := func(t *testing.T, want error) {
		t.Helper()
		_, newest := ring.newest(ringTime)
		_, lookup := ring.lookup(key.ID, ringTime)
		for _, err := range []error{newest, lookup} {
			if !errors.Is(err, want) || want != nil && !errors.Is(err, refusal.ErrRetry) {
				t.Errorf("got %v, want %v to be tried again", err, want)
			}
		}
	}
	t.Run("unread", func(t *testing.T) { check(t, checkRingStale) })
	for name, bad := range map[string]struct {
		keys   []RingKey
		readAt time.Time
	}{
		"an empty reading":           {nil, ringTime},
		"a reading without its time": {[]RingKey{key}, time.Time{}},
		"neither":                    {nil, time.Time{}},
		"an invalid reading":         {[]RingKey{key, key}, ringTime},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ring.Refresh(bad.keys, bad.readAt); err == nil {
				t.Error("taken")
			}
			if _, err := newKeyRing(bad.keys, bad.readAt); err == nil {
				t.Error("a ring was made of it")
			}
			check(t, checkRingStale)
		})
	}
	t.Run("read", func(t *testing.T) {
		if err := ring.Refresh([]RingKey{key}, ringTime); err != nil {
			t.Fatal(err)
		}
		check(t, nil)
	})
	t.Run("not read again", func(t *testing.T) {
		if _, err := ring.newest(ringTime.Add(message.MaxRingAge + 1)); !errors.Is(err, checkRingStale) {
			t.Errorf("got %v", err)
		}
	})
}
