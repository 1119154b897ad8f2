package wallclock

import (
	"testing"
	"time"
)

// TestOr keeps a clock, and has the system's for none.
func TestOr(t *testing.T) {
	then := time.Unix(1, 0)
	if got := Or(func() time.Time { return then })(); !got.Equal(then) {
		t.Errorf("a clock: got %s", got)
	}
	if before := time.Now(); Or(nil)().Before(before) {
		t.Error("no clock: it is behind the system's")
	}
}
